"""The pages of job templates: looking, making a job of one, putting one away."""

from __future__ import annotations

import json
import re

from tests.support.editor import jobs_of
from tests.support.forms import fill, read
from tests.support.service import Site


def test_a_template_is_shown_used_and_put_away(site: Site) -> None:
    site.app.client.templates.create("fog <i>", "story.generate", params={"topic": "fog"}, priority=5)
    assert "fog &lt;i&gt;" in read(site.http, "/templates")
    wrong = fill(site.http, "/templates/1", "/templates/1/job", params='{"words": "many"}', key="k")
    assert wrong.status_code == 422
    assert re.search(r'<textarea name="params"[^>]*aria-invalid="true"', wrong.text)
    assert 'value="k"' in wrong.text
    refused = fill(site.http, "/templates/1", "/templates/1/job", priority="101")
    assert re.search(r'name="priority"[^>]*aria-invalid="true"', refused.text)
    fill(
        site.http,
        "/templates/1",
        "/templates/1/job",
        params='{"words": 3}',
        priority="9",
        not_before="2999-01-01 09:00",
    )
    (made,) = jobs_of(site)
    assert (made.job.template_id, made.job.priority, made.job.status.name) == (1, 9, "SCHEDULED")
    assert json.loads(made.job.params) == {"topic": "fog", "words": 3}
    assert "has changed since" in fill(site.http, "/templates/1", "/templates/1/archive", version="2").text
    assert "is archived" in fill(site.http, "/templates/1", "/templates/1/archive", version="1").text
    assert "fog" not in read(site.http, "/templates").split("<main")[1]
    assert "fog &lt;i&gt;" in read(site.http, "/templates?archived=1")


def test_an_operator_gives_only_open_params(site: Site) -> None:
    fields = {"params": {"argv": ["true"]}, "open_params": ["cwd"]}
    site.app.client.templates.create("shell", "command", **fields)
    operator = site.as_(site.token("operator"))
    page = read(operator, "/templates/1")
    assert 'name="open-cwd"' in page
    assert 'name="params"' not in page
    assert "/templates/1/archive" not in page
    fill(
        operator,
        "/templates/1",
        "/templates/1/job",
        **{"open-cwd": "/tmp", "open-argv": '["rm"]', "params": '{"a": 1}'},
    )
    assert [json.loads(view.job.params) for view in jobs_of(site)] == [{"argv": ["true"], "cwd": "/tmp"}]
    text = {"open-cwd": "1.10"}
    fill(operator, "/templates/1", "/templates/1/job", **text)
    assert json.loads(jobs_of(site)[0].job.params)["cwd"] == "1.10", "what is text stays text"
    assert "only an admin" in fill(operator, "/templates/1", "/templates/1/archive", version="1").text


def test_open_params_keep_their_types(site: Site) -> None:
    """By the task, which says that stdin is text, or by the template's own value; the rest is JSON if it can be."""
    fields = {"params": {"argv": "cat"}, "open_params": ["argv", "stdin", "env", "output_limit"]}
    site.app.client.templates.create("shell", "command", **fields)
    operator = site.as_(site.token("operator"))
    for given, kept in (
        ({"open-stdin": "17"}, {"stdin": "17"}),
        ({"open-argv": "[1]"}, {"argv": "[1]"}),
        ({"open-output_limit": "500"}, {"output_limit": 500}),
        ({"open-env": '{"X": "1"}'}, {"env": {"X": "1"}}),
    ):
        answer = fill(operator, "/templates/1", "/templates/1/job", **given)
        assert "was made of template shell" in answer.text, given
        made = json.loads(max(jobs_of(site), key=lambda view: view.job.id).job.params)
        assert {name: made[name] for name in kept} == kept
    for text, word in (("[" * 20_000, "nested more than"), ("{x", "params.env must be")):
        answer = fill(operator, "/templates/1", "/templates/1/job", **{"open-env": text})
        assert (answer.status_code, word in answer.text) == (422, True)

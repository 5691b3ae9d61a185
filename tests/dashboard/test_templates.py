"""The pages of job templates: looking, making and changing one, making a job of one, putting one away."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from tests.support.editor import jobs_of
from tests.support.forms import csrf, fill, post, read
from tests.support.service import Site

pytestmark = pytest.mark.shown


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
        assert "was created from template shell" in answer.text, given
        made = json.loads(max(jobs_of(site), key=lambda view: view.job.id).job.params)
        assert {name: made[name] for name in kept} == kept
    for text, word in (("[" * 20_000, "nested more than"), ("{x", "params.env must be")):
        answer = fill(operator, "/templates/1", "/templates/1/job", **{"open-env": text})
        assert (answer.status_code, word in answer.text) == (422, True)


# --- the editor ---------------------------------------------------------------------------------------------------

RICH: dict[str, Any] = {
    "params": {"topic": "fog", "words": 3},
    "priority": 5,
    "target": "desk-1",
    "resources": ["ollama"],
    "timeout": "30m",
    "retry_policy": {"max_attempts": 2},
    "budget": {"tokens": 500},
    "on_lost": "hold",
    "on_error": "fail",
    "description": "for <HR>\nand Ada",
    "open_params": ["topic"],
}
FILLED = {
    **{"name": "a story", "task": "story.generate", "params": '{"topic": "fog", "words": 3}', "priority": "5"},
    **{"target": "desk-1", "resources": "ollama", "timeout": "30m", "retry_policy": "2", "budget": '{"tokens": 500}'},
    **{"on_lost": "hold", "on_error": "fail", "description": "for <HR>\r\nand Ada", "open_params": "topic"},
}


def editor_of(text: str) -> dict[str, str]:
    """What the editor would send as it was shown."""
    form = text[text.index('class="stack"') : text.index("</form>", text.index('class="stack"'))]
    found = {
        name: html.unescape(value) for name, value in re.findall(r'<input [^>]*name="([^"]+)" value="([^"]*)"', form)
    }
    areas = re.findall(r'<textarea [^>]*name="([^"]+)"[^>]*>\n(.*?)</textarea>', form, re.DOTALL)
    found |= {name: html.unescape(value) for name, value in areas}
    for name, options in re.findall(r'<select name="([^"]+)"[^>]*>(.*?)</select>', form, re.DOTALL):
        found[name] = "".join(re.findall(r'value="([^"]*)" selected', options))
    return found


def test_a_template_is_made_and_changed_in_the_browser(site: Site) -> None:
    assert 'href="/ui/templates/new"' in read(site.http, "/templates")
    made = fill(site.http, "/templates/new", "/templates/new", **FILLED)
    assert (made.status_code, made.url.path) == (200, "/ui/templates/1")
    assert "Template a story was made." in made.text
    one = site.app.client.templates.get(1)
    assert (one.name, one.task, one.fields) == ("a story", "story.generate", RICH)
    assert 'href="/ui/templates/1/edit"' in made.text
    shown = editor_of(read(site.http, "/templates/1/edit"))
    same = post(site.http, "/templates/1/edit", **shown)
    assert ("Nothing was changed." in same.text, site.app.client.templates.get(1).version) == (True, 1)
    changed = post(site.http, "/templates/1/edit", **{**shown, "name": "another", "budget": "", "priority": "7"})
    assert "Template another was changed." in changed.text
    one = site.app.client.templates.get(1)
    assert (one.name, one.version, "budget" in one.fields, one.fields["priority"]) == ("another", 2, False, 7)
    assert one.fields["description"] == RICH["description"]
    copied = editor_of(read(site.http, "/templates/new?copy=1"))
    assert (copied["name"], copied["priority"]) == ("copy of another", "7")


def test_facts_that_a_form_lacks_are_left_alone(desk: Site) -> None:
    """Blanks around a text, an empty one, a number with a fraction, the ends of lines."""
    odd = {"target": " a ", "timeout": 90.5, "description": "", "params": {"topic": " fog "}}
    desk.app.client.templates.create(" odd ", "story.generate", **odd)
    desk.app.client.templates.create("lines", "story.generate", description="\rone\r\ntwo\r")
    for number, stored in ((1, odd), (2, {"description": "\rone\r\ntwo\r"})):
        path = f"/templates/{number}/edit"
        shown = {name: text.replace("\r\n", "\n") for name, text in editor_of(read(desk.http, path)).items()}
        sent = {name: text.replace("\r", "\n").replace("\n", "\r\n") for name, text in shown.items()}
        assert "Nothing was changed." in post(desk.http, path, **sent).text
        post(desk.http, path, **{**sent, "priority": "7"})
        assert desk.app.client.templates.get(number).fields == {**stored, "priority": 7}
    assert desk.app.client.templates.get(1).name == " odd "
    post(desk.http, "/templates/1/edit", **{**editor_of(read(desk.http, "/templates/1/edit")), "target": "b"})
    assert desk.app.client.templates.get(1).fields["target"] == "b"


def test_a_change_that_python_calls_equal_is_one(desk: Site) -> None:
    desk.app.client.templates.create("fog", "story.generate", budget={"a": 1})
    shown = editor_of(read(desk.http, "/templates/1/edit"))
    post(desk.http, "/templates/1/edit", **{**shown, "budget": '{"a": 1.0}'})
    assert desk.app.client.templates.get(1).version == 2


@pytest.mark.parametrize(
    ("wrong", "where", "part"),
    [
        ({"name": ""}, "name", "name"),
        ({"name": "taken"}, "name", "already"),
        ({"task": "story.genrate"}, "task", "story.generate"),
        ({"task": ""}, "task", "task"),
        ({"params": "{topic}"}, "params", "not JSON"),
        ({"params": "[1]"}, "params", "must be an object"),
        ({"params": '{"words": "many"}'}, "params", "words"),
        ({"priority": "101"}, "priority", "100"),
        ({"resources": "gpu"}, "resources", "gpu"),
        ({"timeout": "soon"}, "timeout", "like 10s"),
        ({"retry_policy": "many"}, "retry_policy", "not JSON"),
        ({"budget": "{"}, "budget", "not JSON"),
        ({"on_lost": "sing"}, "on_lost", "sing"),
        ({"open_params": '[""]'}, "open_params", "open_params"),
    ],
)
def test_a_mistake_in_a_template_is_said_at_its_field(desk: Site, wrong: dict[str, str], where: str, part: str) -> None:
    desk.app.client.templates.create("taken", "story.generate")
    desk.app.client.templates.create("mine", "story.generate")
    for path in ("/templates/new", "/templates/2/edit"):
        fields = {**FILLED, **wrong}
        answer = fill(desk.http, path, path, **fields, version="1")
        assert answer.status_code == 422, path
        text = html.unescape(answer.text)
        assert part in text[text.index('id="wrong"') :][:400], path
        assert re.findall(r'name="([^"]+)"[^>]*aria-invalid="true"', answer.text) == [where], path
        assert '<details class="fold" open>' in answer.text
        kept = editor_of(answer.text)
        assert {name: kept[name] for name in fields} == {name: text.replace("\r", "") for name, text in fields.items()}
        assert desk.http.get(f"/ui{path}").status_code == 200  # where the form stands now can be asked for again
    assert [one.name for one in desk.app.client.templates.list()] == ["taken", "mine"]


def test_an_edit_of_a_template_that_changed_meanwhile_is_refused_unless_it_is_meant(site: Site) -> None:
    site.app.client.templates.create("fog", "story.generate", params={"topic": "fog"})
    shown = editor_of(read(site.http, "/templates/1/edit"))
    site.app.client.templates.edit(1, priority=3)
    refused = post(site.http, "/templates/1/edit", **{**shown, "params": '{"topic": "sea"}'})
    assert refused.status_code == 412
    assert "save this over version 2" in refused.text
    assert json.loads(editor_of(refused.text)["params"]) == {"topic": "sea"}
    assert site.app.client.templates.get(1).params == {"topic": "fog"}
    over = {**editor_of(refused.text), "version": "2"}
    assert "was changed" in post(site.http, "/templates/1/edit", **over).text
    assert site.app.client.templates.get(1).fields == {"params": {"topic": "sea"}}
    site.app.client.templates.archive(1)
    assert post(site.http, "/templates/1/edit", **over).status_code == 409
    assert "/templates/new?copy=1" in read(site.http, "/templates/1")


def test_an_operator_makes_no_template_of_an_admins_task(site: Site) -> None:
    site.app.client.templates.create("shell", "command", params={"argv": ["true"]})
    operator = site.as_(site.token("operator"))
    refused = fill(operator, "/templates/new", "/templates/new", name="mine", task="command", params='{"argv": ["id"]}')
    assert (refused.status_code, "only an admin" in refused.text) == (403, True)
    assert operator.get("/ui/templates/1/edit").status_code == 403
    csrf_of = csrf(read(operator, "/templates/new"))
    fields = {"version": "1", "name": "shell", "task": "story.generate"}
    assert post(operator, "/templates/1/edit", csrf=csrf_of, **fields).status_code == 403
    assert [one.task for one in site.app.client.templates.list()] == ["command"]

"""Templates: defaults that are stored, changed and archived; the jobs made of them keep what they got."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headway.errors import BadInput, NotFound, WrongState
from headway.model.jobs.job import Options
from tests.support.life import Life
from tests.support.schedules import teach


@pytest.fixture
def person(life: Life) -> Life:
    teach(life)
    return life


def test_a_job_of_a_template_has_its_defaults_and_what_the_caller_wants_otherwise(person: Life) -> None:
    templates = person.client.templates
    made = templates.create("t", "sync", params={"n": 1, "mode": "a"}, priority=5, timeout="5m", retry_policy=1)
    job = templates.job(made.id, {"mode": "b"}, priority=9)
    assert (job.task, json.loads(job.params), job.priority) == ("sync", {"n": 1, "mode": "b"}, 9)
    options = Options.parse(job.options)
    assert (options.timeout, options.retry.max_attempts) == (300.0, 1)
    assert templates.job("t").priority == 5


def test_a_template_changes_and_its_history_is_kept(person: Life) -> None:
    templates = person.client.templates
    made = templates.create("t", "sync", params={"n": 1}, description="first", open_params=["n"])
    job_id, _ = person.client.enqueue(templates.job("t"))
    edited = templates.edit("t", params={"n": 2}, description=None, name="u", if_version=made.version)
    assert (edited.name, edited.params, edited.description, edited.open_params) == ("u", {"n": 2}, None, ("n",))
    assert json.loads(person.job(job_id).params) == {"n": 1}
    with pytest.raises(WrongState, match="has changed"):
        templates.edit("u", priority=1, if_version=made.version)
    archived = templates.archive("u")
    assert archived.archived_at == person.clock.now()
    kinds = person.sql("select version, kind from hw_event where thing = 'template' order by version")
    assert kinds == [(1, "template.created"), (2, "template.changed"), (3, "template.archived")]


def test_an_archived_template_makes_no_jobs_and_gives_its_name_back(person: Life) -> None:
    templates = person.client.templates
    old = templates.create("t", "sync")
    with pytest.raises(BadInput, match="already") as caught:
        templates.create("t", "export")
    assert caught.value.field == "name"
    templates.archive("t")
    with pytest.raises(BadInput, match="archived"):
        templates.job("t")
    for verb in (templates.archive, templates.edit):
        with pytest.raises(WrongState, match="archived"):
            verb("t")
    new = templates.create("t", "export")
    assert templates.get("t").id == new.id
    assert templates.get(old.id).task == "sync"
    assert [one.id for one in templates.list()] == [new.id]
    assert [one.id for one in templates.list(archived=True)] == [old.id, new.id]


@pytest.mark.parametrize(
    ("task", "fields", "field", "hint"),
    [
        ("synk", {}, "task", "did you mean sync"),
        ("sync", {"params": {"m": 1}}, "params.m", "not a parameter"),
        ("sync", {"params": [1]}, "params", "dict"),
        ("sync", {"prio": 1}, "prio", "did you mean priority"),
        ("sync", {"timeout": 0}, "timeout", "more than 0"),
        ("sync", {"on_lost": "x"}, "on_lost", "one of"),
        ("sync", {"open_params": "n"}, "open_params", "list"),
        ("sync", {"description": 5}, "description", "text"),
    ],
)
def test_a_bad_template_is_refused(person: Life, task: str, fields: dict[str, Any], field: str, hint: str) -> None:
    with pytest.raises(BadInput) as caught:
        person.client.templates.create("t", task, **fields)
    assert caught.value.field == field
    assert hint in str(caught.value)
    assert person.client.templates.list() == []


def test_an_unknown_template_is_not_found(person: Life) -> None:
    person.client.templates.create("nightly", "sync")
    with pytest.raises(NotFound, match="did you mean nightly"):
        person.client.templates.get("nigthly")
    with pytest.raises(NotFound):
        person.client.templates.get(99)

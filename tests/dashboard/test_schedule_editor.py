"""The editor of schedules: what it shows, what it takes, what it refuses, and the times it looks ahead to."""

from __future__ import annotations

import html
import re
from typing import Any

import httpx
import pytest

from headway.dashboard.pages.schedule_form import ScheduleDraft, moment, spot
from headway.errors import BadInput
from headway.model.access.authority import ADMIN_TASKS
from headway.model.schedules.definition import Definition
from headway.model.schedules.schedule import Schedule
from headway.testing import FrozenClock
from tests.support.editor import NIGHTLY, RICH, STORY, filled_in, make, stored
from tests.support.forms import fill, post, read
from tests.support.service import Site, serving

pytestmark = pytest.mark.shown


def edit(site: Site, schedule_id: int = 1, **fields: str) -> httpx.Response:
    """Opens the editor, changes some fields and saves."""
    path = f"/schedules/{schedule_id}/edit"
    shown = filled_in(read(site.http, path))
    return post(site.http, path, **{**shown, **fields})


# --- the form -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        RICH,
        {**NIGHTLY, "timezone": "UTC"},
        {"interval": "1h30m", "template": 7, "start": "1890-01-01T00:00:00Z", "timezone": "Europe/Amsterdam"},
        {"times": ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"], "timezone": "Europe/Berlin", "template": "fog"},
        {"interval": 0.5 + 1, "steps": [{"template": "fog"}, {"template": 3, "resources": ["a,b", " c"]}]},
    ],
)
def test_the_editor_gives_back_what_it_was_given(fields: dict[str, Any]) -> None:
    """Also both of the times that a clock change brings twice, and an offset with seconds."""
    made = Definition.parse(fields)
    one = Schedule(1, 1, "a", made.text(), 1, "api", 0, None, None, 0, "{}", None, 1)
    assert Definition.parse(ScheduleDraft.showing(one).definition()) == made


@pytest.mark.parametrize(
    ("text", "zone", "means"),
    [
        ("2026-03-01 09:00", "Europe/Berlin", "2026-03-01T08:00:00Z"),
        ("2026-03-01T09:00:30", "UTC", "2026-03-01T09:00:30Z"),
        ("2026-03-01T09:00:00+05:00", "Europe/Berlin", "2026-03-01T09:00:00+05:00"),
        ("2026-10-25 02:30", "Europe/Berlin", "2026-10-25T00:30:00Z"),
        ("2026-03-29 02:30", "Europe/Berlin", "2026-03-29T01:30:00Z"),
    ],
)
def test_times_are_by_the_clocks_of_the_schedule(text: str, zone: str, means: str) -> None:
    assert moment(text, zone, field="start") == means


@pytest.mark.parametrize("text", ["2026-02-30 09:00", "2026-01-01 25:00", "0001-01-01 00:00"])
def test_a_time_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"end is (not a valid time|outside the years)"):
        moment(text, "Pacific/Auckland", field="end")


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("steps[2].params.topic", "step-2-params"),
        ("steps[0].retry_policy.max_attempts", "step-0-retry"),
        ("steps[1].index", "step-1-stage"),
        ("steps[1].on_lost", "step-1-more"),
        ("steps", "step-0-task"),
        ("times[3]", "times"),
        ("params.words", "params"),
        ("cron", "cron"),
        (None, ""),
    ],
)
def test_an_error_finds_its_field(field: str | None, name: str) -> None:
    assert spot(BadInput("no", field=field)) == name


# --- writing ------------------------------------------------------------------------------------------------------


def test_a_schedule_with_stages_is_made(site: Site) -> None:
    fields = {
        "name": "nightly",
        "when": "cron",
        "cron": "30 2 * * mon-fri",
        "timezone": "europe/berlin",
        "what": "steps",
        "enabled": "1",
        "step-0-task": "research.run",
        "step-0-params": '{"topic": "fog"}',
        "step-4-task": "story.generate",
        "step-4-stage": "2",
        "step-4-continue": "1",
        "step-4-resources": "ollama",
        "step-7-task": "story.generate",
        "step-7-stage": "2",
        "step-7-more": '{"priority": 3}',
        "step-9-stage": "5",
        "params": '{"topic": "sea"}',
    }
    answer = fill(site.http, "/schedules/new", "/schedules/new", **fields)
    assert (answer.status_code, answer.url.path) == (200, "/ui/schedules/1")
    assert "Schedule nightly was made." in answer.text
    assert "2 steps side by side" in answer.text
    one = stored(site).parsed
    assert [(step.index, step.name) for step in one.steps] == [
        (0, "research.run"),
        (1, "story.generate"),
        (1, "story.generate 2"),
    ]
    assert one.steps[1].options == {"resources": ["ollama"], "continue_on_failure": True}
    assert one.steps[2].options == {"priority": 3}
    assert one.timezone == "Europe/Berlin"
    assert one.overlap == "skip"


WRONG: list[tuple[dict[str, str], str, str]] = [
    ({"cron": "61 * * * *"}, "cron", "61"),
    ({"timezone": "Berlin"}, "timezone", "Europe/Berlin"),
    ({"name": ""}, "name", "name must have 1 to 200"),
    ({"step-1-params": "{topic}"}, "step-1-params", "steps[1].params is not JSON"),
    ({"step-1-params": '{"words": "many", "topic": "a"}'}, "step-1-params", "words"),
    ({"step-0-stage": "0"}, "step-0-stage", "from 1"),
    ({"step-1-template": "fog"}, "step-1-task", "not both"),
    ({"step-0-more": '{"priorty": 3}'}, "step-0-more", "priority"),
    ({"cap": "many"}, "cap", "whole number"),
    ({"when": "interval", "interval": "soon"}, "interval", "like 10s"),
    ({"jitter": "30h"}, "jitter", "at most 1d"),
    ({"on_failure": "explode"}, "on_failure", "explode"),
    ({"end": "2020-01-01"}, "end", "RFC 3339"),
]


def test_a_mistake_is_said_at_its_field_and_nothing_is_lost(desk: Site) -> None:
    right = {
        **{"name": "nightly", "when": "cron", "cron": "30 2 * * *", "timezone": "UTC", "what": "steps"},
        **{"step-0-task": "research.run", "step-0-params": '{"topic": "<i>"}', "step-1-task": "story.generate"},
        **{"step-1-params": '{"topic": "a"}', "note": "a note & more", "interval": ""},
    }
    for wrong, where, part in WRONG:
        fields = {**right, **wrong}
        answer = fill(desk.http, "/schedules/new", "/schedules/new", **fields)
        assert answer.status_code == 422, wrong
        text = html.unescape(answer.text)
        assert part in text[text.index('id="wrong"') :][:400]
        assert re.findall(r'name="([^"]+)"[^>]*aria-invalid="true"', answer.text) == [where]
        kept = filled_in(answer.text)
        assert {name: kept.get(name) for name in fields} == fields
    assert desk.app.client.schedules.list() == []


def test_steps_come_and_go_and_the_times_are_shown_without_script(desk: Site) -> None:
    fields = {"when": "cron", "cron": "30 2 29 2 *", "timezone": "UTC", "what": "steps"}
    steps = {"step-0-task": "first", "step-1-task": "second", "step-2-task": "third"}
    path = "/schedules/new"
    more = fill(desk.http, path, path, do="add", **fields, **steps)
    assert len(re.findall(r"data-step>", more.text[: more.text.index("<template id")])) == 5
    less = fill(desk.http, path, path, remove="1", **fields, **steps)
    assert [filled_in(less.text)[f"step-{n}-task"] for n in range(3)] == ["first", "third", ""]
    # A row that was emptied before still has its number: it is the row that was pressed that goes.
    emptied = {**steps, "step-0-task": "", "step-3-task": "last"}
    less = fill(desk.http, path, path, remove="2", **fields, **emptied)
    assert [filled_in(less.text)[f"step-{n}-task"] for n in range(3)] == ["second", "last", ""]
    seen = fill(desk.http, path, path, do="preview", **{**fields, "cron": "0 0 29 2 *"})
    assert "at 00:00, on day 29 of February, UTC" in seen.text
    assert len(re.findall(r"29 Feb 20", seen.text)) == 10
    assert desk.app.client.schedules.list() == []


def test_a_step_comes_after_or_beside_another(desk: Site) -> None:
    """The others keep their order, also where a stage said nothing."""
    path = "/schedules/new"
    fields = {"when": "cron", "cron": "30 2 * * *", "timezone": "UTC", "what": "steps"}
    steps = {"step-0-task": "first", "step-2-task": "second", "step-3-task": "third", "step-3-stage": "7"}

    def stages(add: str, **others: str) -> list[tuple[str, str]]:
        answer = fill(desk.http, path, path, add=add, **{**fields, **steps, **others})
        assert len(re.findall(r"data-step>", answer.text[: answer.text.index("<template id")])) == 4
        assert len(re.findall(r'name="step-\d-task"[^>]* autofocus', answer.text)) == 1
        kept = filled_in(answer.text)
        return [(kept[f"step-{n}-task"], kept[f"step-{n}-stage"]) for n in range(4)]

    assert stages("after-0") == [("first", "1"), ("", "2"), ("second", "3"), ("third", "8")]
    assert stages("beside-2") == [("first", "1"), ("second", "2"), ("", "2"), ("third", "7")]
    # After a stage of two steps comes what comes after both.
    assert stages("after-0", **{"step-2-stage": "1"}) == [("first", "1"), ("second", "1"), ("", "2"), ("third", "8")]
    assert stages("after-9") == [("first", "1"), ("second", "2"), ("third", "7"), ("", "8")]
    assert stages("after-0", **{"step-0-stage": "x"})[-1] == ("", ""), "what cannot be read is left as it is"
    assert desk.app.client.schedules.list() == []


def test_what_is_asked_for_less_often_is_folded_until_it_says_something(desk: Site) -> None:
    def open_folds(text: str) -> list[bool]:
        form = text[text.index('<form id="editor"') : text.index("<datalist")]
        return [" open" in found for found in re.findall(r'<details class="fold"( open)?>', form)]

    assert open_folds(read(desk.http, "/schedules/new")) == [False] * 4
    make(desk)
    assert open_folds(read(desk.http, "/schedules/1/edit")) == [False] * 5, "one for the empty step"
    desk.app.client.schedules.create("rich", RICH)
    assert open_folds(read(desk.http, "/schedules/2/edit")) == [True, True, True, True, False, True, True]
    wrong = {"name": "a", "when": "cron", "cron": "30 2 * * *", "timezone": "UTC", "what": "steps", "jitter": "30h"}
    answer = fill(desk.http, "/schedules/new", "/schedules/new", **wrong, **{"step-0-task": "fails"})
    assert open_folds(answer.text) == [False, False, False, False, True]


def test_a_policy_of_ones_own_stays_what_it_is(desk: Site) -> None:
    text = read(desk.http, "/schedules/new")
    assert '<option value="stop" selected>' in text
    draft = {**filled_in(text), "on_failure": "shop:Lenient <i>"}
    kept = post(desk.http, "/schedules/new", **{**draft, "do": "preview"}).text
    assert '<option value="shop:Lenient &lt;i&gt;" selected>' in kept


def test_the_preview_alone_says_what_clock_changes_do(desk: Site) -> None:
    wished = {"when": "cron", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "start": "2027-03-25 00:00"}
    text = desk.http.get("/ui/schedules/preview", params=wished).text
    assert "<html" not in text
    assert "at 02:30, every day, Berlin time" in text
    assert "Sun 28 Mar 2027 03:00 CEST" in text
    assert "moved by the clock change from 02:30 to 03:00" in text
    bad = desk.http.get("/ui/schedules/preview", params={**wished, "cron": "<b>"})
    assert bad.status_code == 200
    assert "<b>&lt;" not in bad.text
    assert 'class="problem"' in bad.text
    over = desk.http.get("/ui/schedules/preview", params={"when": "times", "times": "2020-01-01 00:00"}).text
    assert "would never fire" in over


def test_the_preview_of_an_interval_goes_on_from_where_it_began(sqlite_url: str) -> None:
    clock = FrozenClock("2026-01-01T00:00:00Z")
    with serving(sqlite_url, clock=clock) as site:
        site.app.client.schedules.create("often", {"interval": "1h", "steps": [STORY]})
        clock.advance("90m")
        wished = {"when": "interval", "interval": "2h", "timezone": "UTC"}
        fresh = site.http.get("/ui/schedules/preview", params=wished).text
        kept = site.http.get("/ui/schedules/preview", params={**wished, "of": "1"}).text
    assert "03:30 UTC" in fresh
    assert "02:00 UTC" in kept
    assert "03:30 UTC" not in kept


def test_saving_what_is_there_changes_nothing(site: Site) -> None:
    site.app.client.schedules.create("rich", RICH)
    answer = edit(site)
    assert "Nothing was changed." in answer.text
    assert stored(site).version == 1
    changed = edit(site, cron="0 4 * * *", name="richer", params="", note="")
    assert "Schedule richer was changed." in changed.text
    assert "cron 30 2 * * mon-fri → 0 4 * * *" in changed.text
    now = stored(site)
    assert (now.name, now.parsed.cron, now.parsed.params, now.parsed.note) == ("richer", "0 4 * * *", {}, None)
    assert now.parsed.steps == Definition.parse(RICH).steps


def test_a_name_with_blanks_around_it_is_left_alone(desk: Site) -> None:
    desk.app.client.schedules.create(" odd ", NIGHTLY)
    edit(desk, cron="0 4 * * *")
    assert (stored(desk).name, stored(desk).parsed.cron) == (" odd ", "0 4 * * *")


def test_an_edit_of_what_changed_meanwhile_is_refused_unless_it_is_meant(site: Site) -> None:
    make(site)
    shown = filled_in(read(site.http, "/schedules/1/edit"))
    site.app.client.schedules.edit(1, {"note": "by somebody else"})
    refused = post(site.http, "/schedules/1/edit", **{**shown, "cron": "0 5 * * *"})
    assert refused.status_code == 412
    assert "save this over version 2" in refused.text
    kept = filled_in(refused.text)
    assert kept["cron"] == "0 5 * * *"
    assert stored(site).parsed.note == "by somebody else"
    post(site.http, "/schedules/1/edit", **{**kept, "version": "2"})
    assert (stored(site).parsed.cron, stored(site).parsed.note) == ("0 5 * * *", None)


def test_an_operator_is_not_offered_what_is_an_admins(desk: Site) -> None:
    def offered(who: httpx.Client) -> list[str]:
        listed = read(who, "/schedules/new").partition('<datalist id="tasks">')[2].partition("</datalist>")[0]
        return re.findall(r'value="([^"]+)"', listed)

    admin, operator = (desk.as_(desk.token(role, name=role)) for role in ("admin", "operator"))
    assert set(offered(admin)) - set(offered(operator)) == ADMIN_TASKS
    assert "story.generate" in offered(operator)


def test_a_schedule_of_code_says_that_edits_do_not_last(desk: Site) -> None:
    desk.app.client.schedules.create("declared", NIGHTLY, origin="code")
    for path in ("/schedules/1", "/schedules/1/edit"):
        assert "until a scheduler with that code starts" in read(desk.http, path)
    assert "copy of declared" in read(desk.http, "/schedules/new?copy=1")

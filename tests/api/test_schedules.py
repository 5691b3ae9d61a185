"""`/api/schedules` over real HTTP: making, replacing, changing, switching, running, looking ahead and back."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from headway.api.schemas.common import PageSchema
from headway.api.schemas.groups import BackfilledSchema, ExecutionSchema
from headway.api.schemas.schedules import ScheduleSchema, TickSchema, TimesSchema
from headway.engine.scheduler.scheduler import Scheduler
from headway.model.event import Event
from headway.testing import FrozenClock
from headway.verify import check
from tests.support.deadlines import join
from tests.support.service import Site, serving
from tests.support.wire import all_pages, fits, neighbour, refused

STORY = {"task": "story.generate", "params": {"topic": "fog"}}
NIGHTLY: dict[str, Any] = {"name": "nightly", "cron": "30 2 * * mon-fri", "timezone": "Europe/Berlin", "steps": [STORY]}
PATH = "/api/schedules"


def template(site: Site, name: str = "fog", **fields: Any) -> int:
    made = site.http.post("/api/job-templates", json={"name": name, **STORY, **fields})
    return int(made.json()["template_id"])


def history(site: Site, schedule_id: int) -> list[Event]:
    with site.app.database.read() as tx:
        found = tx.run("events_of", thing="schedule", thing_id=schedule_id, after=0, limit=10_000)
    return [Event(*row) for row in found]


# --- making and changing ------------------------------------------------------------------------------------------


def test_a_schedule_is_made_with_all_its_fields_and_its_first_time(site: Site) -> None:
    fog = template(site)
    more = {"overlap": "queue", "catch_up": "none", "window": "2h", "cap": 3, "jitter": "30s", "note": "for HR"}
    steps = [
        {"task": "research.run", "params": {"topic": "fog"}, "target": "desk-1", "timeout": "10m", "index": 0},
        {
            "template_id": fog,
            "name": "tale",
            "index": 0,
            "continue_on_failure": True,
            "retry_policy": {"max_attempts": 1},
        },
        {**STORY, "index": 4, "resources": ["ollama"]},
    ]
    key = {"Idempotency-Key": "s"}
    body = {**NIGHTLY, **more, "steps": steps, "on_failure": "continue", "start": "2026-01-01T00:00:00Z"}
    answer = site.http.post(PATH, json=body, headers=key)
    one = fits(ScheduleSchema, answer, 201)
    assert (answer.headers["location"], answer.headers["etag"]) == (f"{PATH}/{one['schedule_id']}", '"1"')
    assert (one["origin"], one["enabled"], one["version"]) == ("api", True, 1)
    assert one["sentence"] == "at 02:30, Monday to Friday, Berlin time"
    assert one["next_run_at"].endswith("Z")
    assert (one["window"], one["jitter"], one["cap"], one["note"]) == (7200, 30, 3, "for HR")
    assert [(step["index"], step["name"]) for step in one["steps"]] == [
        (0, "research.run"),
        (0, "tale"),
        (4, "story.generate"),
    ]
    assert (one["steps"][1]["template_id"], "task" in one["steps"][1]) == (fog, False)
    assert (one["steps"][0]["target"], one["steps"][0]["timeout"]) == ("desk-1", "10m")
    again = site.http.post(PATH, json=body, headers=key)
    assert (again.headers["idempotent-replayed"], again.json()) == ("true", one)
    shown = site.http.get(answer.headers["location"])
    assert (shown.json(), shown.headers["etag"]) == (one, '"1"')
    refused(site.http.post(PATH, json=NIGHTLY), 422, "name_taken", "name")
    off = fits(ScheduleSchema, site.http.post(PATH, json={**NIGHTLY, "name": "off", "enabled": False}), 201)
    assert (off["enabled"], off["next_run_at"]) == (False, None)
    once = {"name": "once", "times": ["2099-01-01T00:00:00Z"], "template_id": fog}
    timed = fits(ScheduleSchema, site.http.post(PATH, json=once), 201)
    assert (timed["template_id"], timed["steps"], timed["times"]) == (fog, None, ["2099-01-01T00:00:00Z"])


def test_a_mistake_is_named_by_its_field(site: Site) -> None:
    step = {"name": "x", **STORY}
    wrong: dict[str, dict[str, Any]] = {
        "cron": {"cron": "61 * * * *"},
        "timezone": {"timezone": "Europe/Berlim"},
        "interval": {"interval": "1h"},
        "overlap": {"overlap": "wait"},
        "on_shutdown": {"on_shutdown": "later"},
        "cap": {"cap": 0},
        "colour": {"colour": "red"},
        "end": {"start": "2030-01-01T00:00:00Z", "end": "2029-01-01T00:00:00Z"},
        "steps[1].params.topic": {"steps": [STORY, {"task": "research.run"}]},
        "steps[0].task": {"steps": [{"task": "story.generat"}]},
        "steps[0].template_id": {"steps": [{"template_id": 77}]},
        "steps[1].name": {"steps": [step, step]},
        "template_id": {"steps": None, "template_id": 77},
        "steps": {"steps": []},
        "name": {"name": ""},
    }
    for field, wish in wrong.items():
        answer = site.http.post(PATH, json={**NIGHTLY, **wish})
        assert answer.status_code == 422, (wish, answer.text)
        assert field in [one["field"] for one in answer.json()["errors"]], answer.text
    assert site.http.get(PATH).json() == {"items": [], "next": None}


def test_a_step_kind_of_an_older_system_is_refused_with_the_kind_to_use(site: Site) -> None:
    here = {"RunProfile": "a template", "Executable": "`command`", "SqlScript": "`sql`", "PowerShell": "`powershell`"}
    for kind, words in here.items():
        for step in ({"type": kind}, {"kind": kind, "task": "story.generate"}, {"task": kind}):
            answer = site.http.post(PATH, json={**NIGHTLY, "steps": [step]})
            assert answer.status_code == 422, answer.text
            assert words in answer.text, (step, answer.text)
    assert "`sql`" in site.http.post("/api/jobs", json={"task": "SqlScript"}).text


def test_put_says_everything_anew_and_patch_changes_what_it_names(site: Site) -> None:
    made = site.http.post(PATH, json={**NIGHTLY, "note": "old", "overlap": "queue", "params": {"words": 5}})
    path, number = made.headers["location"], made.json()["schedule_id"]
    patched = site.http.patch(path, json={"interval": "1h", "note": None}, headers={"If-Match": made.headers["etag"]})
    two = fits(ScheduleSchema, patched)
    assert (two["cron"], two["interval"], two["note"], two["overlap"]) == (None, 3600, None, "queue")
    assert (two["params"], two["steps"]) == ({"words": 5}, made.json()["steps"])
    assert site.http.patch(path, json={"on_shutdown": "resume"}).json()["on_shutdown"] == "resume"
    assert site.http.patch(path, json={"on_shutdown": None}).json()["on_shutdown"] is None
    late = {"If-Match": made.headers["etag"]}
    for answer in (
        site.http.patch(path, json={"cap": 2}, headers=late),
        site.http.put(path, json=NIGHTLY, headers=late),
    ):
        refused(answer, 412, "version_mismatch")
    refused(site.http.delete(path, headers=late), 412, "version_mismatch")
    put = site.http.put(path, json={"name": "weekly", "cron": "@weekly", "steps": [STORY]}, headers={"If-Match": '"4"'})
    three = fits(ScheduleSchema, put)
    assert put.headers["etag"] == '"5"'
    assert (three["name"], three["cron"], three["interval"], three["timezone"]) == ("weekly", "0 0 * * 0", None, "UTC")
    assert (three["overlap"], three["params"], three["enabled"]) == ("skip", {}, True)
    for wrong in ({"cron": None}, {"name": None}, {"enabled": None}, {"steps": None}, {"cap": "x"}):
        assert site.http.patch(path, json=wrong).status_code == 422, wrong
    assert site.http.put(path, json={"name": "weekly", "cron": "@weekly"}).status_code == 422
    assert site.http.get(path).json() == three
    assert site.http.put(f"{PATH}/987654", json=NIGHTLY).status_code == 404
    off = site.http.patch(path, json={"enabled": False, "note": "stopped"})
    assert (off.json()["enabled"], off.json()["note"], off.json()["next_run_at"]) == (False, "stopped", None)
    assert site.http.put(path, json=NIGHTLY).json()["enabled"] is False
    created, changed = "schedule.created", "schedule.changed"
    assert [event.kind for event in history(site, number)] == [
        *(created, changed, changed, changed, changed),
        *("schedule.disabled", changed),
    ]
    assert check(site.app.database).findings == []


def test_one_is_switched_off_and_on_and_deleted(site: Site) -> None:
    path = site.http.post(PATH, json=NIGHTLY).headers["location"]
    off = fits(ScheduleSchema, site.http.post(f"{path}/disable", json={"reason": "holidays"}))
    assert (off["enabled"], off["next_run_at"]) == (False, None)
    on = fits(ScheduleSchema, site.http.post(f"{path}/enable"))
    assert site.http.post(f"{path}/reset").json()["code"] == "wrong_state"
    assert (on["enabled"], on["version"]) == (True, 3)
    fits(ScheduleSchema, site.http.delete(path))
    for answer in (site.http.get(f"{path}/next"), site.http.delete(path), site.http.post(f"{path}/enable")):
        refused(answer, 404, "unknown_schedule")
    assert fits(ScheduleSchema, site.http.get(path))["deleted_at"] is not None
    assert site.http.post(PATH, json=NIGHTLY).status_code == 201


def test_pages_go_by_name_past_one_that_was_deleted(site: Site) -> None:
    names = ["a" * 200, "b", "c", "d", "e"]
    for name in reversed(names):
        site.http.post(PATH, json={**NIGHTLY, "name": name})
    fits(PageSchema[ScheduleSchema], site.http.get(PATH))
    assert [one["name"] for one in all_pages(site.http, PATH, limit=2)] == names
    page = site.http.get(f"{PATH}?limit=3").json()
    site.http.delete(f"{PATH}/{page['items'][2]['schedule_id']}")
    rest = site.http.get(PATH, params={"limit": 3, "cursor": page["next"]}).json()
    assert ([one["name"] for one in rest["items"]], rest["next"]) == (["d", "e"], None)
    refused(site.http.get(f"{PATH}?cursor=nonsense"), 422, "bad_input", "cursor")


def test_a_template_that_is_named_is_shown_by_its_number(site: Site) -> None:
    fog = template(site)
    steps = [{"template": "fog"}, {"template": fog, "name": "again"}]
    site.app.client.schedules.create("a", {"cron": "@daily", "template": "fog"}, origin="file")
    site.app.client.schedules.create("b", {"cron": "@daily", "steps": steps}, origin="code")
    page = fits(PageSchema[ScheduleSchema], site.http.get(PATH))
    one, two = page["items"]
    assert (one["template_id"], one["template"], one["origin"]) == (fog, "fog", "file")
    assert [step["template_id"] for step in two["steps"]] == [fog, fog]
    site.http.patch(f"/api/job-templates/{fog}", json={"name": "mist"})
    shown = fits(ScheduleSchema, site.http.get(f"{PATH}/{one['schedule_id']}"))
    assert (shown["template_id"], shown["template"]) == (fog, "fog")  # bound when it was saved


# --- running and looking ------------------------------------------------------------------------------------------


def test_a_manual_run_is_refused_while_one_is_active_unless_forced(site: Site) -> None:
    path = site.http.post(PATH, json={**NIGHTLY, "enabled": False}).headers["location"]
    key = {"Idempotency-Key": "now"}
    answer = site.http.post(f"{path}/run", json={"params": {"words": 9}}, headers=key)
    one = fits(ExecutionSchema, answer, 201)
    assert answer.headers["location"] == f"/api/schedule-executions/{one['execution_id']}"
    assert (one["kind"], one["status"], one["schedule_id"]) == ("manual", "IN_PROGRESS", int(path.rpartition("/")[2]))
    job = site.http.get(f"/api/jobs/{one['steps'][0]['job_id']}").json()
    assert (job["params"], job["execution_id"]) == ({"topic": "fog", "words": 9}, one["execution_id"])
    refused(site.http.post(f"{path}/run"), 409, "wrong_state")
    assert site.http.post(f"{path}/run", json={"params": {"words": 9}}, headers=key).json() == one
    assert site.http.post(f"{path}/run", json={"force": True}).status_code == 201
    refused(site.http.post(f"{path}/run", json={"force": True, "params": {"words": "x"}}), 422, "bad_params")
    assert len(site.http.get("/api/schedule-executions").json()["items"]) == 2
    operator = site.as_(site.token("operator", name="ada"))
    assert operator.post(f"{path}/run", json={"force": True}).json()["created_by"]["name"] == "ada"


def test_a_backfill_makes_what_did_not_fire(site: Site) -> None:
    path = site.http.post(PATH, json={**NIGHTLY, "cron": "30 2 * * *"}).headers["location"]
    wish = {"since": "2025-03-29T00:00:00Z", "until": "2025-03-31T23:00:00Z"}
    times = ["2025-03-29T01:30:00Z", "2025-03-30T01:00:00Z", "2025-03-31T00:30:00Z"]
    dry = fits(BackfilledSchema, site.http.post(f"{path}/backfill", json={**wish, "dry_run": True}))
    assert (dry["times"], dry["items"]) == (times, [])
    key = {"Idempotency-Key": "b"}
    made = fits(BackfilledSchema, site.http.post(f"{path}/backfill", json=wish, headers=key), 201)
    assert [(one["kind"], one["nominal_at"]) for one in made["items"]] == [("backfill", time) for time in times]
    ids = [one["execution_id"] for one in made["items"]]
    assert [one["after"] for one in made["items"]] == [None, *ids[:2]]
    assert site.http.post(f"{path}/backfill", json=wish, headers=key).json() == made
    assert len(site.http.get("/api/schedule-executions").json()["items"]) == 3
    empty = {"since": "2025-03-29T00:00:00Z", "until": "2025-03-29T00:30:00Z"}
    assert fits(BackfilledSchema, site.http.post(f"{path}/backfill", json=empty))["items"] == []
    for field, wrong in (
        ("until", {**wish, "until": "2099-01-01T00:00:00Z"}),
        ("until", {**wish, "until": "2024-01-01T00:00:00Z"}),
        ("since", {**wish, "since": "yesterday"}),
        ("since", {"until": wish["until"]}),
    ):
        refused(site.http.post(f"{path}/backfill", json=wrong), 422, "bad_input", field)


def test_the_next_times_say_what_clock_changes_do(site: Site) -> None:
    path = site.http.post(PATH, json={**NIGHTLY, "cron": "30 2 * * sun"}).headers["location"]
    times = fits(TimesSchema, site.http.get(f"{path}/next", params={"count": 100}))
    assert (len(times["items"]), times["timezone"]) == (100, "Europe/Berlin")
    noted = [one for one in times["items"] if one["note"]]
    assert {one["local"][11:16] for one in noted} == {"02:30", "03:00"}
    assert len(site.http.get(f"{path}/next").json()["items"]) == 5
    for count in (0, 1001, "x"):
        refused(site.http.get(f"{path}/next", params={"count": count}), 422, "bad_input", "count")


def test_the_ledger_says_what_became_of_every_time(database_url: str) -> None:
    clock = FrozenClock("2026-01-01T00:00:00Z")
    with serving(database_url, clock=clock) as site:
        path = site.http.post(PATH, json={"name": "hourly", "cron": "@hourly", "steps": [STORY]}).headers["location"]
        scheduler = Scheduler(site.app.client)
        for _ in range(3):
            clock.advance("1h")
            while scheduler.tick() == 0.0:
                pass
        page = fits(PageSchema[TickSchema], site.http.get(f"{path}/ticks"))
        found = [(one["nominal_at"], one["outcome"]) for one in page["items"]]
        assert found == [
            ("2026-01-01T03:00:00Z", "SKIPPED"),
            ("2026-01-01T02:00:00Z", "SKIPPED"),
            ("2026-01-01T01:00:00Z", "FIRED"),
        ]
        assert all_pages(site.http, f"{path}/ticks", limit=1) == page["items"]
        execution = site.http.get(f"/api/schedule-executions/{page['items'][2]['execution_id']}").json()
        assert (execution["kind"], execution["nominal_at"]) == ("tick", "2026-01-01T01:00:00Z")
        assert execution["created_by"]["type"] == "schedule"


def test_missed_ticks_are_in_the_overview_until_they_are_seen(database_url: str) -> None:
    clock = FrozenClock("2026-01-01T00:00:00Z")
    with serving(database_url, clock=clock) as site:
        body = {"name": "hourly", "cron": "@hourly", "catch_up": "none", "steps": [STORY]}
        path = site.http.post(PATH, json=body).headers["location"]
        clock.advance("2h 30m")
        Scheduler(site.app.client).tick()
        (missed,) = site.http.get("/api/overview").json()["missed_ticks"]
        first, last = "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"
        assert missed == {"schedule_id": 1, "name": "hourly", "count": 2, "first": first, "last": last}
        assert site.http.get(path).json()["missed_seen_at"] is None  # looking at it is not enough
        seen = fits(ScheduleSchema, site.http.post(f"{path}/seen"))
        assert seen["missed_seen_at"] == "2026-01-01T02:30:00Z"
        assert site.http.get("/api/overview").json()["missed_ticks"] == []
        assert fits(ScheduleSchema, site.http.post(f"{path}/seen")) == seen
        assert site.http.post(f"{PATH}/99/seen").status_code == 404


# --- who may ------------------------------------------------------------------------------------------------------


def test_schedules_of_commands_are_an_admins_also_through_templates(site: Site) -> None:
    shell = template(site, "shell", task="command", params={"argv": ["true"]}, open_params=["stdin"])
    fog = template(site)
    theirs = site.http.post(PATH, json={"name": "admins", "cron": "@daily", "template_id": shell}).headers["location"]
    mine = site.http.post(PATH, json=NIGHTLY).headers["location"]
    operator = site.as_(site.token("operator"))
    command = {"task": "command", "params": {"argv": ["id"]}}
    for what in (
        {"steps": [STORY, command]},
        {"steps": [STORY, {"template_id": shell}]},
        {"steps": None, "template_id": shell},
        {"on_failure": "tests.support.own_policies.Nothing"},
    ):
        refused(operator.post(PATH, json={**NIGHTLY, "name": "new", **what}), 403, "admin_only")
        refused(operator.put(mine, json={**NIGHTLY, **what}), 403, "admin_only")
        refused(operator.patch(mine, json=what), 403, "admin_only")
    for answer in (
        operator.patch(theirs, json={"params": {"argv": ["id"]}}),
        operator.patch(theirs, json={"template_id": fog}),
        operator.put(theirs, json=NIGHTLY),
        operator.delete(theirs),
        operator.post(f"{theirs}/run", json={"params": {"argv": ["id"]}}),
    ):
        refused(answer, 403, "admin_only")
    for verb in ("disable", "enable", "run"):
        assert operator.post(f"{theirs}/{verb}").status_code in (200, 201)
    assert operator.patch(theirs, json={"enabled": False}).json()["enabled"] is False
    assert operator.post(PATH, json={**NIGHTLY, "name": "ok", "steps": [{"template_id": fog}]}).status_code == 201
    viewer = site.as_(site.token("viewer"))
    assert (viewer.get(mine).status_code, viewer.post(f"{mine}/run").status_code) == (200, 403)


def test_schedules_and_templates_of_others_are_not_there(site: Site) -> None:
    fog = template(site)
    path = site.http.post(PATH, json=NIGHTLY).headers["location"]
    other = neighbour(site)
    unknown = other.get(f"{PATH}/987654").json()["detail"].replace("987654", path.rpartition("/")[2])
    assert refused(other.get(path), 404, "unknown_schedule") == unknown
    wishes: dict[str, Any] = {"backfill": {"since": "2025-01-01T00:00:00Z", "until": "2025-01-02T00:00:00Z"}}
    for verb in ("enable", "disable", "run", "backfill"):
        assert other.post(f"{path}/{verb}", json=wishes.get(verb)).status_code == 404
    for answer in (other.put(path, json=NIGHTLY), other.patch(path, json={"cap": 1}), other.delete(path)):
        assert answer.status_code == 404
    assert [other.get(f"{path}/{noun}").status_code for noun in ("next", "ticks")] == [404, 404]
    assert other.get(PATH).json()["items"] == []
    stolen = {**NIGHTLY, "steps": [{"template_id": fog}]}
    refused(other.post(PATH, json=stolen), 422, "unknown_template", "steps[0].template_id")


@pytest.mark.parametrize("verb", ["patch", "run"])
def test_rights_are_those_over_what_is_changed_and_not_over_what_it_was(site: Site, verb: str) -> None:
    """An operator's params, and an admin's edits that make the schedule run a command in turns, meet all the time."""

    @site.app.task("argue")
    async def argue(argv: list[str]) -> None: ...

    def body(task: str) -> dict[str, Any]:
        return {"steps": [{"task": task}], "params": {"argv": ["true"]}}

    path = site.http.post(PATH, json={"name": "s", "cron": "@daily", **body("argue")}).headers["location"]
    operator, admin = site.as_(site.token("operator")), site.as_(site.token("admin", name="root"))
    stop = threading.Event()

    def switch() -> None:
        while not stop.is_set():
            admin.patch(path, json=body("command"))
            admin.patch(path, json=body("argue"))

    other = threading.Thread(target=switch)
    other.start()
    try:
        for _ in range(60):
            if verb == "patch":
                operator.patch(path, json={"params": {"argv": ["evil"]}})
            else:
                operator.post(f"{path}/run", json={"force": True, "params": {"argv": ["evil"]}})
    finally:
        stop.set()
        join(other)
    jobs = all_pages(admin, "/api/jobs", limit=200)
    assert [one["job_id"] for one in jobs if one["task"] == "command" and one["params"] == {"argv": ["evil"]}] == []
    said = [json.loads(event.data or "")["definition"] for event in history(site, int(path.rpartition("/")[2]))]
    evil = [one["steps"][0]["task"] for one in said if one["params"] == {"argv": ["evil"]}]
    assert set(evil) <= {"argue"}
    assert bool(evil) == (verb == "patch")  # or they never met

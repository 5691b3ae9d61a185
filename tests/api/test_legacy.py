"""The old addresses, over real HTTP, in the words their clients know."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import Event
from typing import get_args

import pytest

from headway import Context
from headway.api.legacy import announcement, schemas
from headway.clock import micros
from headway.engine.monitoring.legacy_calls import CLIENTS, OTHER, LegacyCalls
from headway.errors import Stopped
from headway.model.jobs.states import State
from headway.testing import FrozenClock
from tests.support.service import Site, running, serving, shop

HEADERS = ("deprecation", "sunset", "link")

OLD_JOB = {
    "job_id", "type", "status", "params", "pid", "log_path", "artifacts", "created_at", "started_at", "finished_at",
    "exit_code", "error",
}  # fmt: skip


def test_every_state_has_its_word_in_both_old_vocabularies() -> None:
    assert set(schemas._STATUS) == set(schemas._TARGET_STATUS) == set(State)
    assert set(schemas._STATUS.values()) == set(get_args(schemas.OldStatus))
    assert set(schemas._TARGET_STATUS.values()) == set(get_args(schemas.OldTargetStatus))
    ended = {state for state in State if state.terminal}
    assert {schemas._STATUS[state] for state in ended} == {"succeeded", "failed", "skipped", "cancelled"}
    assert {schemas._TARGET_STATUS[state] for state in ended} == {"SUCCESS", "CANCELED"}


def test_a_story_is_triggered_followed_and_listed_as_before(site: Site) -> None:
    made = site.http.post("/jobs/story/trigger", json={"topic": "fog"})
    assert made.status_code == 202
    assert set(made.json()) == {"job_id", "type", "status", "message"}
    assert (made.json()["type"], made.json()["status"]) == ("story", "queued")
    assert all(made.headers[name] for name in HEADERS)
    assert made.headers["link"] == '</api/jobs>; rel="successor-version"'
    path = f"/jobs/{made.json()['job_id']}"
    assert set(site.http.get(path).json()) == OLD_JOB
    site.drain()
    ended = site.http.get(f"{path}/").json()
    assert (ended["status"], ended["params"]) == ("succeeded", {"topic": "fog"})
    assert site.http.get("/jobs").json()["total"] == 1
    assert site.http.get(ended["log_path"]).status_code == 200
    assert site.http.get(f"/api{path}").json()["status"] == "COMPLETED"


def test_a_batch_runs_one_after_the_other(site: Site) -> None:
    jobs = [{"type": "research", "params": {"topic": "fog"}}, {"type": "story", "params": {"topic": "fog"}}]
    made = site.http.post("/jobs/batch/trigger", json={"jobs": jobs})
    assert made.status_code == 202
    assert set(made.json()) == {"batch_id", "job_ids", "job_count", "status", "message"}
    assert (made.json()["job_count"], made.json()["status"]) == (2, "queued")
    site.drain()
    assert site.http.get(f"/jobs/batch/{made.json()['batch_id']}").json()["status"] == "succeeded"
    bad = site.http.post("/jobs/batch/trigger", json={"jobs": [{"type": "poem"}]})
    assert (bad.status_code, bad.json()["errors"][0]["field"]) == (422, "jobs[0].type")


def test_a_job_is_cancelled_as_before(site: Site) -> None:
    number = site.http.post("/jobs/research/trigger", json={"topic": "fog"}).json()["job_id"]
    assert site.http.post(f"/jobs/{number}/cancel").json()["status"] == "cancelled"
    assert site.http.post(f"/jobs/{number}/cancel").status_code == 409


@pytest.mark.parametrize("number", ["0f8fad5b-d9cb-469f-a165-70867728950e", "987654321", "story_17", "0"])
def test_a_number_of_the_old_system_is_not_one_of_ours(site: Site, number: str) -> None:
    site.http.post("/api/jobs", json={"task": "fails"})
    assert site.http.get(f"/jobs/{number}").status_code == 404
    assert site.http.get("/jobs/1").status_code == 404, "a job of a task that the old system did not have"


@pytest.mark.parametrize("end", ["", "/"])
def test_a_job_on_a_target_is_stopped_and_resumed_as_before(site: Site, end: str) -> None:
    made = site.http.post(f"/targets/desk-1/jobs{end}", json={"task": "fails"})
    assert (made.status_code, made.json()["status"]) == (201, "QUEUED")
    site.drain()
    path = f"/targets/desk-1/jobs/{made.json()['job_id']}"
    held = site.http.get(f"{path}{end}").json()
    assert (held["status"], held["target_id"], held["cancel_requested"]) == ("ERROR", "desk-1", False)
    assert site.http.post(f"{path}/resume{end}").json()["status"] == "QUEUED"
    other = site.http.post(f"/targets/desk-2/jobs{end}", json={"task": "fails"}).json()["job_id"]
    stopped = site.http.post(f"/targets/desk-2/jobs/{other}/cancel{end}").json()
    assert stopped["status"] == "PENDING", "cancel meant interrupt: it is on hold, and can be resumed"
    assert site.http.post(f"/targets/desk-2/jobs/{other}/resume{end}").json()["status"] == "QUEUED"
    assert site.http.get(f"/targets/desk-2/jobs/{made.json()['job_id']}{end}").status_code == 404
    assert [one["job_id"] for one in site.http.get(f"/targets/desk-1/jobs{end}").json()["jobs"]] == [
        made.json()["job_id"]
    ]


def test_other_old_addresses_are_gone_and_say_where_to_look(site: Site) -> None:
    for method, path in (("GET", "/jobs/queue/status"), ("DELETE", "/jobs/1"), ("POST", "/targets/desk-1/reset")):
        gone = site.http.request(method, path)
        assert (gone.status_code, gone.json()["code"]) == (410, "gone")
        assert gone.headers["link"].startswith("</api/")


def test_a_target_of_any_name_is_linked_to(site: Site) -> None:
    made = site.http.post("/targets/%D0%B4%D0%BE%D0%BC%3E%3B%20rel/jobs", json={"task": "fails"})
    assert made.status_code == 201
    assert made.json()["target_id"] == "дом>; rel"
    assert made.headers["link"] == '</api/targets/%D0%B4%D0%BE%D0%BC%3E%3B%20rel/jobs>; rel="successor-version"'


@pytest.fixture
def ripe() -> Event:
    """Until it is set, a story fails."""
    return Event()


@pytest.fixture
def orchard(database_url: str, ripe: Event) -> Iterator[Site]:
    """A site whose stories fail, with one automatic retry at once, until they are ripe."""
    app = shop(database_url, legacy={"story": "ripens"})

    @app.task("ripens", retry={"max_attempts": 1, "base_delay": 0})
    async def ripens() -> None:
        if not ripe.is_set():
            raise ValueError("not ripe")

    with app, running(app) as site:
        yield site


def _batch(site: Site, count: int = 2) -> tuple[str, list[str]]:
    made = site.http.post("/jobs/batch/trigger", json={"jobs": [{"type": "story"}] * count}).json()
    return f"/jobs/batch/{made['batch_id']}", made["job_ids"]


def _listed(site: Site, query: str = "") -> dict[str, str]:
    answer = site.http.get(f"/jobs{query}")
    assert answer.status_code == 200, answer.text
    return {job["job_id"]: job["status"] for job in answer.json()["jobs"]}


@pytest.mark.parametrize("again", ["job", "group"])
def test_the_ids_of_a_batch_stay_whatever_is_retried(orchard: Site, ripe: Event, again: str) -> None:
    path, ids = _batch(orchard)
    orchard.drain()
    failed = orchard.http.get(path).json()
    assert (failed["job_ids"], failed["status"]) == (ids, "failed"), "each was tried twice"
    assert _listed(orchard) == dict.fromkeys(ids, "failed")
    ripe.set()
    if again == "group":
        number = path.rpartition("/")[2]
        assert orchard.http.post(f"/api/job-groups/{number}/retry").status_code in (200, 201)
    else:
        for job_id in ids:
            orchard.app.client.retry(int(job_id), again=True)
    assert orchard.http.get(path).json()["status"] == "queued"
    orchard.drain()
    done = orchard.http.get(path).json()
    assert (done["job_ids"], done["job_count"], done["status"]) == (ids, 2, "succeeded")
    assert _listed(orchard) == dict.fromkeys(ids, "succeeded")
    assert orchard.http.get(f"/jobs/{ids[0]}").json()["status"] == "succeeded"


def test_every_job_of_a_batch_is_listed_though_retries_are_many(orchard: Site) -> None:
    _, ids = _batch(orchard, 150)
    orchard.drain()  # 300 jobs, of which the newest 200 would leave out first ones
    assert list(_listed(orchard)) == [*reversed(ids)]
    assert orchard.http.get("/jobs/batch/987").status_code == 404


def test_a_group_of_other_tasks_is_no_batch(site: Site) -> None:
    assert site.http.post("/api/job-groups", json={"name": "x", "jobs": [{"task": "fails"}]}).status_code == 201
    number = site.http.get("/api/job-groups").json()["items"][0]["group_id"]
    assert site.http.get(f"/jobs/batch/{number}").status_code == 404


def test_the_old_lists_filter_or_refuse(site: Site) -> None:
    story = site.http.post("/jobs/story/trigger", json={"topic": "fog"}).json()["job_id"]
    site.drain()
    first, second = (site.http.post("/jobs/research/trigger", json={"topic": "x"}).json()["job_id"] for _ in "ab")
    assert list(_listed(site)) == [second, first, story]
    assert list(_listed(site, "?limit=1")) == [second]
    assert list(_listed(site, "?limit=2&offset=1")) == [first, story]
    assert list(_listed(site, "?status=succeeded")) == [story]
    assert list(_listed(site, "?type=research&status=queued&offset=1")) == [first]
    assert list(_listed(site, "?offset=3")) == []
    held = site.http.post("/targets/desk-1/jobs", json={"task": "fails"}).json()["job_id"]
    site.drain()
    waits = site.http.post("/targets/desk-1/jobs", json={"task": "fails"}).json()["job_id"]
    for query, ids in (("", [waits, held]), ("?status=ERROR", [held]), ("?limit=1&offset=1", [held])):
        assert [job["job_id"] for job in site.http.get(f"/targets/desk-1/jobs{query}").json()["jobs"]] == ids
    for path in ("/jobs", "/targets/desk-1/jobs"):
        for query in ("status=sleeping", "limit=0", "limit=x", "offset=-1", "page=2"):
            refused = site.http.get(f"{path}?{query}")
            assert refused.status_code == 422, query
            assert refused.json()["errors"][0]["field"] == query.partition("=")[0]
            assert all(refused.headers[name] for name in HEADERS)


@pytest.mark.parametrize("verb", ["clear", "release", "retry"])
def test_a_job_that_holds_nothing_is_not_shown_as_an_error(site: Site, verb: str) -> None:
    path = f"/targets/desk-1/jobs/{site.http.post('/targets/desk-1/jobs', json={'task': 'fails'}).json()['job_id']}"
    site.drain()
    assert site.http.get(path).json()["status"] == "ERROR", "it holds the target and can be resumed"
    act = f"{path}/clear" if verb == "clear" else f"/api/jobs/{path.rpartition('/')[2]}/{verb}"
    assert site.http.post(act).status_code in (200, 201)
    assert site.http.get(path).json()["status"] == "CANCELED", "it has ended and holds nothing"
    assert site.http.post(f"{path}/resume").status_code == 409
    states = [job["status"] for job in site.http.get("/targets/desk-1/jobs").json()["jobs"]]
    assert states == (["QUEUED", "CANCELED"] if verb == "retry" else ["CANCELED"])


def test_an_interrupted_job_says_so_in_the_old_words(database_url: str) -> None:
    app = shop(database_url)

    @app.task("stops")
    async def stops(ctx: Context) -> None:
        await asyncio.to_thread(app.client.interrupt, ctx.job_id)
        raise Stopped

    with app, running(app) as site:
        number = site.http.post("/targets/desk-1/jobs", json={"task": "stops"}).json()["job_id"]
        site.drain()
        shown = site.http.get(f"/targets/desk-1/jobs/{number}").json()
        assert (shown["status"], shown["message"]) == ("PAUSED", "Job was interrupted by user")
        assert shown["cancel_requested"] is False


def test_errors_announce_the_end_too(site: Site) -> None:
    old = [site.http.get("/jobs/story_17"), site.http.post("/jobs/batch/trigger", json={"jobs": []})]
    old += [site.http.put("/jobs"), site.http.get("/targets/desk-1/jobs/99"), site.http.get("/jobs/x/y")]
    token = site.token("viewer")
    old += [site.as_("hw_wrong").get("/jobs"), site.as_(token).post("/jobs/story/trigger", json={"topic": "fog"})]
    assert [answer.status_code for answer in old] == [404, 422, 405, 404, 410, 401, 403]
    for answer in old:
        assert all(answer.headers[name] for name in HEADERS), answer.status_code
        assert answer.headers["link"].startswith("</api/")
    fresh = site.as_(token).get("/api/jobs/99")
    assert not any(name in fresh.headers for name in HEADERS)


def test_old_calls_are_counted_by_path_and_client(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        site.http.get("/jobs", headers={"User-Agent": "old-app/1.4"})
        site.http.get("/jobs/", headers={"User-Agent": "old-app/1.4"})
    ada = site.as_(site.token("admin", tenant=None), **{"User-Agent": "old-app/1.4"})
    ada.get("/targets/desk%2F1/jobs/7")
    counted = [line for line in ada.get("/metrics").text.splitlines() if line.startswith("headway_legacy_calls_total")]
    assert counted == [
        'headway_legacy_calls_total{client="old-app/1.4",path="/jobs"} 4.0',
        'headway_legacy_calls_total{client="ada",path="/targets/{name}/jobs/{job_id}"} 1.0',
    ]
    logged = [record.getMessage() for record in caplog.records if "is called by" in record.getMessage()]
    assert [text.split(":")[0] for text in logged] == [
        "the deprecated address /jobs is called by old-app/1.4",
        "the deprecated address /targets/{name}/jobs/{job_id} is called by ada",
    ]


def test_callers_are_logged_once_a_day_and_their_number_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    calls, day = LegacyCalls(), micros(24 * 3600.0)
    for now in (0, 1, day - 1, day, day + 1):
        calls.count("/jobs", "curl", now)
    assert len(caplog.records) == 2
    for n in range(CLIENTS + 50):
        calls.count("/jobs", f"client {n}\n", 0)
    counts = calls.counts()
    assert (counts["/jobs", "curl"], counts["/jobs", OTHER]) == (5, 51)
    assert len(counts) == CLIENTS + 1
    assert ("/jobs", "client 7?") in counts


@pytest.mark.parametrize("path", ["/jobs", "/jobs/batch/1", "/targets/desk-1/jobs", "/jobs/queue/status"])
def test_switched_off_the_old_addresses_are_gone(sqlite_url: str, path: str) -> None:
    with serving(sqlite_url, legacy={"enabled": False}) as site:
        gone = site.http.get(path)
        assert (gone.status_code, gone.json()["code"]) == (410, "gone")
        assert all(gone.headers[name] for name in HEADERS)
        assert site.http.get("/api/jobs").status_code == 200


@pytest.mark.parametrize(("enabled", "status"), [(None, 410), (True, 200)])
def test_after_their_last_day_they_answer_only_where_they_are_set_to(
    sqlite_url: str, enabled: bool | None, status: int
) -> None:
    with serving(sqlite_url, legacy={} if enabled is None else {"enabled": enabled}) as site:
        site.server.service.clock = FrozenClock(micros(announcement.UNTIL.timestamp()))
        assert site.http.get("/jobs").status_code == status
    last = micros(announcement.UNTIL.timestamp())
    assert [announcement.in_force(None, now) for now in (last - 1, last)] == [True, False]

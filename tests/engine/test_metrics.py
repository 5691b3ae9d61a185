"""Figures for Prometheus: right, documented, and as cheap with many jobs as with few."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway.clock import micros
from headway.engine.monitoring import metrics
from headway.engine.monitoring.metrics import Metrics
from headway.model.jobs.outcome import Lost
from headway.store import stats, workers
from headway.store.jobs import reports
from tests.support.life import BROKEN, Life
from tests.support.schedules import Clockwork

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        yield life


class Scraped(dict[str, float]):
    """{"name{label=value,…}": value}"""


def scrape(found: Metrics) -> Scraped:
    answer = Scraped()
    for family in text_string_to_metric_families(found.text().decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()) if value)
            answer[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return answer


GLOBAL = "{kind=policy,lane=global}"


def test_a_lane_says_what_waits_and_what_runs(life: Life) -> None:
    life.enqueue()
    life.clock.advance(30)
    life.enqueue(priority=5)
    life.claim(life.enqueue(priority=9))
    life.in_state("waiting")
    found = scrape(Metrics(life.database))
    assert found[f"headway_queue_depth{GLOBAL}"] == 2
    assert found[f"headway_queue_oldest_wait_seconds{GLOBAL}"] == 30
    assert found[f"headway_running{GLOBAL}"] == 1
    assert found[f"headway_lane_limit{GLOBAL}"] == 1


def test_an_empty_installation_has_figures_too(life: Life) -> None:
    found = scrape(Metrics(life.database))
    assert found[f"headway_queue_depth{GLOBAL}"] == 0
    assert found[f"headway_queue_oldest_wait_seconds{GLOBAL}"] == 0
    assert found["headway_claims_total"] == 0
    assert found["headway_failures_total{kind=LOST}"] == 0
    assert found["headway_tick_lag_seconds"] == 0
    assert 0 < found["headway_database_ping_seconds"] < 5


def test_resources_and_targets_have_lanes_of_their_own(life: Life) -> None:
    life.client.lanes.defined["ollama"] = 2
    life.enqueue(resources=("ollama",))
    life.enqueue(target="desk-1")
    life.enqueue(target="desk-1")
    life.pick(0)  # chooses the first job of each target
    found = scrape(Metrics(life.database))
    assert found["headway_queue_depth{kind=resource,lane=ollama}"] == 1
    assert found["headway_lane_limit{kind=resource,lane=ollama}"] == 2
    assert found["headway_queue_depth{kind=target,lane=targets}"] == 1


def test_events_are_counted_from_the_first_scrape_on(life: Life) -> None:
    life.in_state("completed")
    one = Metrics(life.database)
    assert scrape(one)["headway_claims_total"] == 0
    life.in_state("completed")
    life.in_state("failed")
    life.in_state("cancelled")
    life.in_state("skipped")
    life.client.resolve(life.in_state("error"))
    found = scrape(one)
    assert found["headway_claims_total"] == 4
    assert found["headway_finished_total{outcome=completed}"] == 2
    assert found["headway_finished_total{outcome=failed}"] == 1
    assert found["headway_finished_total{outcome=cancelled}"] == 1
    assert found["headway_finished_total{outcome=skipped}"] == 1
    assert found["headway_failures_total{kind=EXCEPTION}"] == 1
    assert found["headway_failures_total{kind=LOST}"] == 1
    assert found["headway_leases_lost_total"] == 1
    assert scrape(one) == {**found, "headway_database_ping_seconds": pytest.approx(0, abs=5)}


def test_ticks_are_counted_by_outcome(life: Life) -> None:
    clockwork, one = Clockwork(life), Metrics(life.database)
    scrape(one)
    clockwork.create()
    clockwork.create("often", interval=60, catch_up="none", overlap="allow")
    clockwork.advance(62 * 60)
    clockwork.advance(3 * 60)
    clockwork.schedules.run("nightly", force=True)  # no tick
    found = scrape(one)
    told: dict[str, int] = dict(life.sql("select outcome, sum(count) from hw_tick group by outcome"))
    assert told.keys() == {"FIRED", "SKIPPED", "MISSED", "COALESCED"}
    for outcome, count in told.items():
        assert found[f"headway_ticks_total{{outcome={outcome}}}"] == count
    assert scrape(one)["headway_ticks_total{outcome=MISSED}"] == told["MISSED"]  # each once


def test_lost_claims_and_late_writes(life: Life) -> None:
    one = Metrics(life.database)
    scrape(one)
    claim = life.claim(life.enqueue())
    life.end(claim, Lost("the worker is gone"))
    life.database.transact("late", lambda tx: reports.reject_late(tx, (claim.job_id, claim.fence), life.actor()))
    found = scrape(one)
    assert found["headway_leases_lost_total"] == 1
    assert found["headway_late_writes_rejected_total"] == 1


def test_a_worker_that_was_lost_with_a_cancel_pending_counts_too(life: Life) -> None:
    one = Metrics(life.database)
    scrape(one)
    claim = life.claim(life.enqueue())
    life.client.cancel(claim.job_id)
    life.end(claim, Lost("the worker is gone"))
    assert scrape(one)["headway_leases_lost_total"] == 1


def test_counters_never_go_back_and_count_once_however_often_and_by_whomever_they_are_asked(life: Life) -> None:
    two = [Metrics(life.database), Metrics(life.database)]
    for one in two:
        scrape(one)
    last = 0.0
    for n in range(5):
        life.in_state("completed")
        for one in two:
            seen = scrape(one)["headway_claims_total"]
            assert seen == n + 1 >= last
            last = seen


def test_an_event_that_commits_late_is_counted(postgres_url: str) -> None:
    with Life(postgres_url) as life:
        one = Metrics(life.database)
        scrape(one)
        job_id = life.enqueue()
        with psycopg.connect(postgres_url) as slow:
            slow.execute(
                "insert into hw_event (tenant_id, thing, thing_id, version, kind, at, actor)"
                " values (1, 'job', 4711, 9, 'job.claimed', 0, '{}')"
            )
            life.claim(job_id)
            scrape(one)
            slow.commit()
        assert scrape(one)["headway_claims_total"] == 2


def test_more_events_than_one_scrape_may_count_are_left_to_the_next(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Metrics(life.database)
    scrape(one)
    for _ in range(4):
        life.in_state("completed")
    monkeypatch.setattr(stats, "SLICE", 5)
    monkeypatch.setattr(metrics, "SECONDS", -1.0)
    assert scrape(one)["headway_events_behind"] == 12
    monkeypatch.setattr(metrics, "SECONDS", 1.0)
    found = scrape(one)
    assert found["headway_events_behind"] == 0
    assert found["headway_finished_total{outcome=completed}"] == 4


def test_workers_are_counted_by_state(life: Life) -> None:
    silent = life.new_worker()
    life.clock.advance(61)
    life.database.transact("beat", lambda tx: workers.beat(tx, life.worker_id, 60.0))
    life.database.transact("stuck", lambda tx: workers.set_state(tx, life.worker_id, "stuck", life.actor()))
    found = scrape(Metrics(life.database))
    assert found["headway_workers{state=stuck}"] == 1
    assert found["headway_workers{state=silent}"] == 1
    assert found["headway_workers{state=live}"] == 0
    assert silent


def test_a_tick_that_is_late_shows(life: Life) -> None:
    columns = "tenant_id, name, definition, enabled, origin, decided_until, next_at, created_at, created_by"
    due = life.clock.now() - micros(90)
    life.sql_write(f"insert into hw_schedule ({columns}) values (1, 'nightly', '{{}}', 1, 'api', 0, {due}, 0, '{{}}')")
    assert scrape(Metrics(life.database))["headway_tick_lag_seconds"] == 90


def test_counting_stops_at_a_bound(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    life.client.enqueue_alike(life.new(), ["{}"] * 60)
    monkeypatch.setattr(stats, "COUNTED", 50)
    assert scrape(Metrics(life.database))[f"headway_queue_depth{GLOBAL}"] == 50


def test_the_figures_read_no_table_from_end_to_end(life: Life) -> None:
    """The plans of the statements that look at jobs: each goes by an index, whatever the statistics say."""
    life.client.enqueue_alike(life.new(), ["{}"] * 3_000)
    for _ in range(20):
        life.in_state("completed", priority=9)
    wanted = ("filled_buckets", "oldest_of_buckets", "throughput", "last_ended", "bound_of_ended", "count_held_jobs")
    params = {"ids": "[1]", "most": 100, "limit": 10, "since": 0, "span": 1, "tenant_id": 1, "now": 0}
    with life.database.read() as tx:
        tx.run("pin_plans")
        for name in wanted:
            plan = explained(life, tx, name, params)
            assert not re.search(r"Seq Scan on hw_job|SCAN (hw_job|j|k)\b(?! USING)", plan), f"{name}\n{plan}"


def explained(life: Life, tx: object, name: str, params: dict[str, object]) -> str:
    (text,) = life.database.texts[name]  # type: ignore[attr-defined]
    word = "explain query plan " if life.database.dialect == "sqlite" else "explain "
    rows = tx.connection.execute(word + text, params).fetchall()  # type: ignore[attr-defined]
    return "\n".join(str(row[-1]) for row in rows)


def test_every_metric_is_documented_and_nothing_else_is(life: Life) -> None:
    life.run(life.enqueue(), BROKEN)
    found = set(re.findall(r"^# TYPE (\S+)", Metrics(life.database).text().decode(), re.MULTILINE))
    documented = set(re.findall(r"^\| `(headway_\w+)", DOCS.read_text(), re.MULTILINE))
    assert found == documented


def test_registering_asks_the_database_nothing(life: Life) -> None:
    life.database.close()
    Metrics(life.database)

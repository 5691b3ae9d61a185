"""One list of checks: what `doctor` answers and what the Health page lists have the same findings and remedies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from headway import App
from headway.engine.monitoring import checks
from headway.engine.monitoring.check import Audience, Check, Expected, Scope
from headway.engine.monitoring.readiness import ready
from headway.model.access.secrets import OwnedSecret
from headway.model.checks import Answer
from headway.runtime import supervisor
from headway.verify import check
from tests.support.life import Life
from tests.support.schedules import Clockwork


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        yield life


def answers(life: Life, tenant_id: int | None) -> dict[str, Answer]:
    with life.database.read() as tx:
        found = checks.checks_for(Audience.HEALTH_PAGE)
        return {check.name: check.answer(Scope(tx, tenant_id)) for check in found}


def test_doctor_and_the_health_page_say_the_same(life: Life) -> None:
    life.in_state("ERROR", target="desk-1")
    life.enqueue(target="desk-2")
    life.client.pause_target("desk-2")
    life.clock.advance(3600)  # the worker is silent
    of_all, of_tenant = answers(life, None), answers(life, life.client.tenant_id)
    for name, mark in (("workers", "broken"), ("held", "look"), ("targets", "look")):
        assert (of_all[name].mark, of_tenant[name].mark) == (mark, mark), name
    for name in ("workers", "targets"):
        (listed,) = [finding for finding in of_tenant[name].findings if finding.subject is not None]
        assert of_all[name].remedy == listed.remedy.line
    (held,) = of_tenant["held"].findings
    assert (of_all["held"].remedy or "").partition(";")[0] == held.remedy.line.partition(";")[0]


def test_readyz_warns_of_each_finding_without_a_subject(life: Life) -> None:
    life.clock.advance(3600)
    found = [finding for answer in answers(life, None).values() for finding in checks.whole(answer)]
    assert [finding.kind for finding in found] == ["no_worker", "workers_silent"]
    assert [
        (reason.code, finding.sentence in reason.text)
        for reason, finding in zip(ready(life.database).warnings, found, strict=True)
    ] == [
        ("no_worker", True),
        ("workers_silent", True),
    ]


def of_schedules() -> Check[Any]:
    (found,) = [check for check in checks.CHECKS if check.name == "schedules"]
    return found


def test_a_schedule_that_can_no_longer_run_is_reported_with_its_reason(life: Life) -> None:
    clockwork = Clockwork(life)
    template = life.client.templates.create("export", "sync", params={"source": {"$secret": "hr"}})
    clockwork.create("of-template", template="export")
    kept = {"hr": OwnedSecret("env:HR", tenants=("*",))}

    def unusable(tenant_id: int | None, **more: Any) -> list[str]:
        with life.database.read() as tx:
            answer = of_schedules().answer(Scope(tx, tenant_id, expected=Expected({"sync"}, **more)))
        assert (answer.mark == "look") == bool(answer.findings)
        return [finding.sentence for finding in answer.findings]

    for tenant_id in (None, life.client.tenant_id):
        assert unusable(tenant_id, secrets=kept) == []
        assert unusable(tenant_id) == []  # settings without secrets say nothing about those of a worker
        (sentence,) = unusable(tenant_id, secrets={"crm": kept["hr"]})
        assert sentence.startswith(
            "of-template: step export: sync: params.source asks for the secret hr, which is unknown"
        )
        assert unusable(tenant_id, strict=True) == [sentence]
    assert unusable(99) == []
    life.client.templates.archive(template.id)
    assert unusable(None, secrets=kept) == ["of-template: template export is archived"]
    assert check(life.database).findings == []


def test_a_script_whose_connection_is_gone_is_reported(database_url: str) -> None:
    with App(database=database_url) as app:
        named = {"connection": "hr", "script": "select 1"}
        app.client.schedules.create("load", {"interval": 60, "steps": [{"task": "sql", "params": named}]})
        with app.database.read() as tx:
            found = [
                of_schedules().answer(Scope(tx, expected=Expected({"sql"}, connections=some)))
                for some in ({"hr"}, {"crm"})
            ]
    assert [answer.mark for answer in found] == ["ok", "look"]
    why = "params.connection names the connection hr, which is unknown: add it to connections in the worker's settings"
    assert found[1].detail == f"cannot run: load: step sql: sql: {why}"


def test_missed_ticks_are_reported_until_a_person_has_seen_them(life: Life) -> None:
    clockwork = Clockwork(life)
    for name in ("hourly", "daily"):
        clockwork.create(name, cron="0 * * * *", catch_up="none")
    clockwork.advance("2h 30m")
    for tenant_id in (None, life.client.tenant_id):
        answer = answers(life, tenant_id)["missed"]
        assert answer.mark == "look"
        assert answer.detail.startswith("2 ticks of hourly were missed while no scheduler ran, 2 ticks of daily were")
        assert "headway schedules seen --all" in (answer.remedy or "")
        assert [finding.kind for finding in answer.findings] == ["ticks_missed"] * 2
    made = clockwork.schedules.get("hourly")
    seen = clockwork.schedules.see("hourly")
    assert seen.missed_seen_at == life.clock.now()
    assert clockwork.events("schedule", made.id)[-1] == (made.version + 1, "schedule.seen")
    assert clockwork.schedules.see("hourly") == seen  # nothing is left to be seen, so nothing is written
    (left,) = answers(life, None)["missed"].findings
    assert (left.remedy.command, left.remedy.page) == ("headway schedules seen daily", "/schedules/2")
    clockwork.schedules.delete("daily")
    assert answers(life, None)["missed"].mark == "ok"
    clockwork.advance("2h 30m")
    ((later,),) = [answers(life, None)["missed"].findings]
    assert later.sentence == "2 ticks of hourly were missed while no scheduler ran"
    assert check(life.database).findings == []


def test_a_listed_finding_leads_to_a_page(life: Life) -> None:
    life.in_state("PAUSED")
    life.clock.advance(3600)
    with life.database.read() as tx:
        found = list(checks.items(Scope(tx, life.client.tenant_id)))
    assert {finding.kind for finding in found} == {"worker_silent", "job_held"}
    assert all(finding.remedy.page for finding in found)


def test_a_start_warns_when_the_server_can_lose_commits(
    life: Life, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The servers of the tests sync nothing; on one that does, the default of its sessions is the cause."""
    postgres = life.database.dialect == "postgres"
    if postgres:
        with psycopg.connect(database_url, autocommit=True) as raw:
            raw.execute(f"alter database {raw.info.dbname} set synchronous_commit = off".encode())
    with App(database_url) as app:
        supervisor(app, ["worker"])
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("PostgreSQL: ")]
    assert len(said) == postgres
    for line in said:
        assert re.search(r"(fsync|full_page_writes|synchronous_commit).* (off|is off here).*\. Remedy: turn ", line), (
            line
        )

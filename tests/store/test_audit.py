"""The audit list among many events of jobs: it reads its own index, and enqueue and claim write nothing into it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from headway.model.audit import THINGS, AuditFilter
from headway.model.event import Event
from headway.model.jobs.job import Actor
from headway.store import audit_views, paging
from headway.store.paging import Page
from headway.store.postgres.row_security import walled
from tests.support.life import ADA, Life
from tests.support.tenants import add_tenant

MANY = 40_000
NUMBERS = {
    "sqlite": "with recursive g(n) as (select 1 union all select n + 1 from g where n < {count}) select n from g",
    "postgres": "select generate_series(1::bigint, {count}) as n",
}
# One event in a thousand is of a person: of a job, of a token. The rest is the flow of jobs.
FILL = """
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, fence)
select 1 + n % 2, case when n % 1000 = 7 then 'token' else 'job' end, n, 1,
  case when n % 1000 = 7 then 'token.created' when n % 1000 = 8 then 'job.moved' else 'job.claimed' end, 3,
  {base} + n * 1000000,
  case when n % 1000 in (7, 8) then '{ada}' else '{{"type":"worker","id":"f","name":"box:1"}}' end, 1
from ({numbers}) g;
"""


def fill(life: Life) -> None:
    numbers = NUMBERS[life.database.dialect].format(count=MANY)
    text = FILL.format(ada=ADA.text(), numbers=numbers, base=life.clock.now())
    life.database.transact("fill", lambda tx: life.database.execute_script(tx, text))


def everything(life: Life, wanted: AuditFilter, *, tenants: tuple[int, ...] = (1,), limit: int = 7) -> list[Event]:
    found: list[Event] = []
    cursor: str | None = None
    while True:
        with life.database.read() as tx:
            page: Page[Event] = audit_views.listed(tx, tenants, wanted, limit, cursor)
        found, cursor = [*found, *page.items], page.next
        if cursor is None:
            return found


def test_every_page_together_is_the_list(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(life)
    with life.database.read() as tx:
        known = [
            Event(*row[:-1]) for row in tx.run("events_between", after=0, upto=1 << 62, limit=MANY * 2, size=1 << 40)
        ]
    people = [event for event in known if event.kind in ("token.created", "job.moved")]
    for tenants in ((1,), (2,), (1, 2)):
        expected = sorted((event.id for event in people if event.tenant_id in tenants), reverse=True)
        listed = everything(life, AuditFilter(actor="ada"), tenants=tenants)
        assert [event.id for event in listed] == expected
    monkeypatch.setattr(paging, "BUDGET", 20)  # most pages are short now
    assert {event.kind for event in everything(life, AuditFilter(kind="job.moved"))} == {"job.moved"}
    began = life.clock.now() + (MANY - 5_000) * 1_000_000
    recent = everything(life, AuditFilter(since=began, until=life.clock.now() + MANY * 1_000_000))
    assert [event.thing_id for event in recent] == [n for n in range(MANY, MANY - 5_000, -1) if n % 1000 == 8]


def test_the_list_reads_its_own_index_only(life: Life) -> None:
    fill(life)
    scope = {"tenant_id": 1, "before": 1 << 62, "floor": 0, "limit": 50}
    assert _plan(life, "walk_audit", scope).count("hw_event_audit") == 1
    plan = _plan(life, "walk_thing", {**scope, "thing": "job", "thing_id": 7})
    assert "hw_event_audit" not in plan
    assert "thing_id" in plan


def _plan(life: Life, name: str, params: Mapping[str, object]) -> str:
    database: Any = life.database
    explain = "explain query plan" if database.dialect == "sqlite" else "explain"
    with database.read() as tx:
        tx.run("pin_plans")
        (text,) = database.texts[name]
        return "; ".join(str(row[-1]) for row in tx.connection.execute(f"{explain} {text}", params).fetchall())


def test_the_flow_of_jobs_writes_nothing_into_the_index(life: Life) -> None:
    count = f"select count(*) from hw_event where {_predicate(life)}"
    before = life.sql(count)[0][0]
    job_id = life.in_state("COMPLETED")
    life.in_state("FAILED")
    assert life.sql(count)[0][0] == before
    life.client.cancel(life.enqueue())
    assert life.sql(count)[0][0] == before + 1
    with life.database.read() as tx:
        whole = audit_views.listed(tx, (1,), AuditFilter(thing="job", thing_id=job_id), 50, None)
    assert [event.kind for event in whole.items] == ["job.completed", "job.claimed", "job.created"]


def _predicate(life: Life) -> str:
    if life.database.dialect == "sqlite":
        ((text,),) = life.sql("select sql from sqlite_schema where name = 'hw_event_audit'")
    else:
        ((text,),) = life.sql("select indexdef from pg_indexes where indexname = 'hw_event_audit'")
    return re.split(r"\bwhere\b", str(text).lower(), maxsplit=1)[1]


def test_a_tenant_behind_the_wall_reads_its_own(postgres_life: Life) -> None:
    life, other = postgres_life, add_tenant(postgres_life, "other")
    life.client.pause_queue(note="fog")
    other.pause_queue(note="rain")
    with walled(life.database, other.tenant_id).read() as tx:
        seen = audit_views.listed(tx, (other.tenant_id,), AuditFilter(kind="tenant.paused"), 50, None).items
        theirs = audit_views.listed(tx, (1,), AuditFilter(kind="tenant.paused"), 50, None).items
    assert [json.loads(event.data or "{}")["note"] for event in seen] == ["rain"]
    assert theirs == []


def test_the_filter_survives_the_query() -> None:
    wanted = AuditFilter("ada", "job", 7, "job.moved", 1_700_000_000_000_000, 1_700_000_000_000_001)
    assert AuditFilter.from_query(wanted.to_query()) == wanted
    assert AuditFilter.from_query({"thing": None, "actor": ""}) == AuditFilter()
    assert len(set(THINGS)) == len(THINGS)
    assert Actor.parse(ADA.text()) == ADA

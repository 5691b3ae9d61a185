"""What the end of a stage costs does not grow with the steps of other groups, whether these have ended or not."""

from __future__ import annotations

import json

from headway.store.db import Tx
from headway.store.groups import advance as groups
from tests.store.test_plans import SERIES, Recorded, check_postgres, check_sqlite
from tests.support.life import Life
from tests.support.plans import job_of, make

# Open groups, each with an open job; then one that has ended, with all its steps.
FILL = """
insert into hw_group (id, tenant_id, name, mode, on_failure, status, stage, stages, created_at, created_by)
  select 1000 + n, 1, 'open', 'staged', 'stop', 'RUNNING', 0, 1, 1, '{{}}' from {few};
insert into hw_job (id, tenant_id, bucket_id, status, priority, position, created_at, queued_at, gate, task, params,
  options, created_by, group_id, stage, step)
  select 100000 + n, 1, 1, 2, 0, n, n, n, 1, 'task', '{{}}', '{{}}', '{{}}', 1000 + n, 0, 'a' from {few};
insert into hw_group (id, tenant_id, name, mode, on_failure, status, stage, stages, created_at, finished_at, created_by)
  values (900000, 1, 'ended', 'staged', 'stop', 'COMPLETED', 0, 1, 1, 2, '{{}}');
insert into hw_job (id, tenant_id, bucket_id, status, priority, position, created_at, queued_at, started_at,
  finished_at, fence, task, params, options, created_by, group_id, stage, step)
  select 200000 + n, 1, 1, 6, 0, n, n, n, n, n, 1, 'task', '{{}}', '{{}}', '{{}}', 900000, 0, 'a' from {many};
"""


def fill(tx: Tx) -> None:
    series = SERIES[tx.database.dialect].format
    for text in FILL.format(few=series(4_000), many=series(20_000)).split(";"):
        if text.strip():
            tx.connection.execute(text)  # type: ignore[attr-defined]


def end(tx: Tx, ids: list[int]) -> None:
    """As they are just before their group is looked after."""
    text = (
        f"update hw_job set status = 6, gate = 0, fence = 1, started_at = 1, finished_at = 2 where id in {tuple(ids)}"
    )
    tx.connection.execute(text)  # type: ignore[attr-defined]


def test_the_end_of_a_stage_looks_at_its_own_group_alone(life: Life) -> None:
    made = make(life, "a b", "c")
    life.database.transact("fill", fill)
    life.database.transact("end", lambda tx: end(tx, [job_of(life, made, step) for step in "ab"]))
    call = Recorded("ended_stages", {"ids": json.dumps([made])}, pinned=True)
    with life.database.read() as tx:
        found = tx.run(call.name, **call.params)
        assert [row[1:] for row in found] == tx.run("stage_members", group_id=made, stage=0)
        assert len(found) == 2
        assert [one.step for one in groups.members(tx, made)] == ["a", "b", "c"]
    if life.database.dialect == "sqlite":
        check_sqlite(life, [call])
    else:
        check_postgres(life, [call], generic=False)
        check_postgres(life, [call], generic=True)

"""Shared by both databases: the tables, the jobs, and rates at the beginning and the end of a drain."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

Rates = dict[str, float]
Claimed = list[tuple[int, int]]  # id and fence

BULK = 1_000  # jobs per commit where jobs are filled in
EDGE = 2_000  # how many jobs the "first" and "last" rates of a drain are taken over

SCHEMA = """
create table job (
  id {pk}, bucket_id bigint not null, task text not null, status smallint not null check (status between 0 and 9),
  gate smallint not null default 0 check (gate = 0 or (gate = 1 and status = 2)),
  priority smallint not null default 0, position bigint not null, created_at bigint not null,
  worker_id bigint, slot integer, fence integer not null default 0, lease_until bigint,
  version integer not null default 1, started_at bigint, finished_at bigint, params text not null,
  check (status <> 3 or (worker_id is not null and slot is not null and lease_until is not null)),
  check (status < 6 or finished_at is not null)
);
create index job_ready on job (bucket_id, priority desc, position, created_at, id) where gate = 1;
create unique index job_slot on job (worker_id, slot) where status = 3;
create table run (job_id {key}, task text not null, params text not null, worker_id bigint not null,
  started_at bigint not null, status smallint not null default 3, finished_at bigint, exit_code integer, error text);
create table event (id {pk}, job_id bigint not null, version integer not null, kind text not null, at bigint not null,
  actor text not null, fence integer, data text, unique (job_id, version));
create table result (job_id {key}, value text not null);
"""


def now() -> int:
    return time.time_ns() // 1_000


def params(count: int) -> list[str]:
    return [json.dumps({"n": n}) for n in range(count)]


def edges(finished: Sequence[tuple[float, int]]) -> Rates:
    """The rates over the first and the last jobs of a drain, from (moment, jobs finished at it) in order."""

    def rate(part: Sequence[tuple[float, int]]) -> float:
        count, taken = 0, 0
        for _, jobs in part[1:]:
            count, taken = count + jobs, taken + 1
            if count >= EDGE:
                break
        return count / abs(part[taken][0] - part[0][0]) if taken else 0.0

    # Backwards, each moment pairs with the jobs of the step after it.
    back = [(moment, jobs) for (moment, _), (_, jobs) in zip(finished, [*finished[1:], (0.0, 0)], strict=True)][::-1]
    return {"first": rate(finished), "last": rate(back)}


def expect(found: int, jobs: int) -> None:
    if found != jobs:
        raise RuntimeError(f"{found} of {jobs} jobs have a result")

"""Groups for tests: made by the client, lived through with claims and ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headway.model.groups.group import Group, NewGroup, NewMember
from headway.model.jobs.job import Options
from headway.model.jobs.outcome import Completed, Outcome
from headway.model.jobs.retry import RetryPolicy
from headway.store.groups import advance as groups
from tests.support.life import Life

ONCE = Options(retry=RetryPolicy(max_attempts=0))


def member(life: Life, stage: int, step: str, *, tolerated: bool = False, retry: int = 0, **fields: Any) -> NewMember:
    options = replace(ONCE, retry=RetryPolicy(max_attempts=retry, base_delay=0.0), continue_on_failure=tolerated)
    return NewMember(life.new(**fields)._replace(options=options.text()), stage, step)


def new_group(life: Life, *stages: Sequence[str], on_failure: str = "stop", **fields: Any) -> NewGroup:
    """`new_group(life, "a", "bc")`: a, then b and c. A name that ends with `?` may fail."""
    members = [
        member(life, n, step.rstrip("?"), tolerated=step.endswith("?"), params="{}")
        for n, stage in enumerate(stages)
        for step in (stage.split() if isinstance(stage, str) else stage)
    ]
    return NewGroup("plan", "staged", on_failure, tuple(members), **fields)


def make(life: Life, *stages: str, **fields: Any) -> int:
    return life.client.groups.create(new_group(life, *stages, **fields))


def group(life: Life, group_id: int) -> Group:
    return life.client.groups.get(group_id)


def states(life: Life, group_id: int) -> dict[str, str]:
    with life.database.read() as tx:
        return {one.step: one.state.name for one in groups.members(tx, group_id)}


def job_of(life: Life, group_id: int, step: str) -> int:
    with life.database.read() as tx:
        (found,) = [one.job_id for one in groups.members(tx, group_id) if one.step == step]
    return found


def finish(life: Life, group_id: int, step: str, outcome: Outcome | None = None) -> None:
    """Claims the last job of a step and ends it."""
    assert life.end(life.claim(job_of(life, group_id, step)), outcome or Completed())


def group_events(life: Life, group_id: int) -> list[str]:
    text = f"select kind from hw_event where thing_id = {group_id} and thing in ('group', 'execution') order by version"
    return [kind for (kind,) in life.sql(text)]

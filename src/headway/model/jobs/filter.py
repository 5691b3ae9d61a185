"""The filter of jobs and runs, and its form in the query of a request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.model.jobs.states import State
from headway.model.values import state_names
from headway.model.values.names import check_name
from headway.model.values.times import instant, instant_text

RUNNING = frozenset({State.RUNNING})


@dataclass(frozen=True, slots=True)
class JobFilter:
    """JobFilter jobs or runs.

    `q` is searched in task, key, reason and error, ignoring the case of a-z. `target` is a name; an unknown target is
    refused. `group_id` is a group or an execution. `exhausted` jobs are the last of a failed chain.
    `stopping` means RUNNING with a stop request, and no other statuses.
    """

    statuses: frozenset[State] = frozenset()
    task: str | None = None
    key: str | None = None
    failure_kind: str | None = None
    created_by: str | None = None
    since: int | None = None
    until: int | None = None
    q: str | None = None
    target: str | None = None
    group_id: int | None = None
    schedule_id: int | None = None
    exhausted: bool | None = None
    stopping: bool = False

    @property
    def possible_statuses(self) -> frozenset[State]:
        """The states that a matching job may have; empty means any."""
        return frozenset({State.FAILED}) if self.exhausted and not self.statuses else self.statuses

    @staticmethod
    def from_query(asked: Mapping[str, Any], *, labels: Mapping[str, str] | None = None) -> JobFilter:
        """Checks the fields of a query. Times are RFC 3339, or microseconds; `labels` name the fields in a refusal."""
        names = {"status": "status", "failure_kind": "failure_kind", **(labels or {})}
        given = {name: value for name, value in asked.items() if value is not None}
        wanted = given.pop("status", ())
        stopping = state_names.only_stopping(wanted, label=names["status"])
        statuses = RUNNING if stopping else state_names.states(wanted, label=names["status"])
        kind = state_names.failure_kind(given.pop("failure_kind", None), label=names["failure_kind"])
        for name in ("since", "until"):
            if isinstance(given.get(name), str):
                given[name] = instant(given[name], field=name)
        if "target" in given:
            check_name(given["target"], field="target")
        return JobFilter(statuses, failure_kind=kind, stopping=stopping, **given)

    def to_query(self) -> dict[str, Any]:
        """Returns the fields of a query; `from_query` reads them."""
        times = {"since": self.since, "until": self.until}
        query = {
            "status": [state_names.STOPPING]
            if self.stopping
            else sorted(state.name for state in self.statuses) or None,
            "task": self.task,
            "key": self.key,
            "failure_kind": self.failure_kind,
            "created_by": self.created_by,
            **{name: None if at is None else instant_text(at) for name, at in times.items()},
            "q": self.q or None,
            "target": self.target,
            "group_id": self.group_id,
            "schedule_id": self.schedule_id,
            "exhausted": self.exhausted,
        }
        return {name: value for name, value in query.items() if value is not None}

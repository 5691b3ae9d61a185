"""Turns rows into the values of the model, by the order of their columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from headway.model.access.permissions import Role, Token
from headway.model.explain.snapshot import QUEUED_JOB_COLUMNS
from headway.model.groups.group import Group
from headway.model.jobs.job import JobRecord, Reservation, Run
from headway.model.jobs.outcome import FailureKind
from headway.model.jobs.states import State, StopRequest
from headway.model.schedules.schedule import Schedule, Tick
from headway.model.templates import Template
from headway.model.webhooks.webhook import Delivery, Endpoint
from headway.store.db import Row
from headway.store.statements import blocks, sql_text, statements_of

T = TypeVar("T")
JOB_COLUMNS = [field.name for field in dataclasses.fields(JobRecord)]
RUN_FIELDS = [field.name for field in dataclasses.fields(Run)]
# The last two fields are no columns of the run: they are joined from the job and its result.
RUN_COLUMNS = RUN_FIELDS[:-2]

TOKEN_COLUMNS = [field.name for field in dataclasses.fields(Token)]


# The states of a job by name, and conditions on `status`: `where status {is_held}`, `set status = {RUNNING}`. The
# conditions are ranges, because the indexes of hw_job are partial on the same ranges.
STATES = {
    **{state.name: str(int(state)) for state in State},
    "is_unclaimed": f"<= {State.QUEUED:d}",
    "is_startable": f"between {State.SCHEDULED:d} and {State.RUNNING:d}",
    "is_claimed": f"between {State.RUNNING:d} and {State.ERROR:d}",
    "is_held": f"between {State.PAUSED:d} and {State.ERROR:d}",
    "is_unfinished": f"<= {State.ERROR:d}",
    "is_finished": f">= {State.COMPLETED:d}",
}


_WITHOUT_PARAMS = {"params": "'{}'", "unfilled": "cast(null as text)"}


def fragments() -> dict[str, Any]:
    """Returns the column lists, states and shared conditions by fragment name."""
    return {
        **STATES,
        "queued_job_columns": ", ".join(f"j.{name}" for name in QUEUED_JOB_COLUMNS),
        "job_columns": ", ".join(f"j.{name}" for name in JOB_COLUMNS),
        # Params may have 256 KiB for each job.
        "job_columns_without_params": ", ".join(_WITHOUT_PARAMS.get(name, f"j.{name}") for name in JOB_COLUMNS),
        "delivery_columns": ", ".join(f"d.{field.name}" for field in dataclasses.fields(Delivery)),
        "endpoint_columns": ", ".join(f"e.{field.name}" for field in dataclasses.fields(Endpoint)),
        "group_columns": ", ".join(f"g.{field.name}" for field in dataclasses.fields(Group)),
        "reservation_columns": ", ".join(f"r.{field.name}" for field in dataclasses.fields(Reservation)),
        "schedule_columns": ", ".join(f"s.{field.name}" for field in dataclasses.fields(Schedule)),
        "tick_columns": ", ".join(f"t.{field.name}" for field in dataclasses.fields(Tick)),
        "template_columns": ", ".join(f"t.{field.name}" for field in dataclasses.fields(Template)),
        "token_columns": ", ".join("n.name" if name == "tenant" else f"t.{name}" for name in TOKEN_COLUMNS),
        "run_columns": ", ".join(f"r.{name}" for name in RUN_COLUMNS) + ", j.failure_kind, s.body",
        **{name: " ".join(statements_of(text)) for name, text in blocks(sql_text("fragments", "filters.sql")).items()},
    }


def _reader(kind: Callable[..., T], columns: Sequence[str]) -> Callable[[Row], T]:
    """Returns a function that makes a value of a row, with the enum columns converted by name."""
    enums = [(column, _ENUMS[column]) for column in columns if column in _ENUMS]

    def read(row: Row) -> T:
        values = dict(zip(columns, row, strict=True))
        for column, convert in enums:
            if values[column] is not None:
                values[column] = convert(values[column])
        return kind(**values)

    return read


# The columns that are stored as plain values and read as enums.
_ENUMS: Mapping[str, Callable[[Any], Any]] = {
    "status": State,
    "stop": StopRequest,
    "failure_kind": FailureKind,
    "role": Role,
}
job = _reader(JobRecord, JOB_COLUMNS)
run = _reader(Run, RUN_FIELDS)
token = _reader(Token, TOKEN_COLUMNS)

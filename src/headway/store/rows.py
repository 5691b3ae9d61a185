"""Rows to values: the one place that knows the order of columns."""

from __future__ import annotations

import dataclasses
from typing import Any

from headway.model.access import Token
from headway.model.job import Job, Reservation, Run
from headway.model.outcome import FailureKind
from headway.model.plan import Group
from headway.model.schedule import Schedule, Tick
from headway.model.states import State, Stop
from headway.model.template import Template
from headway.model.webhooks import Delivery, Endpoint
from headway.store.db import Row, blocks, sql_text, statements_of

JOB_COLUMNS = [field.name for field in dataclasses.fields(Job)]
# The last two live beside the run and are only shown with it.
RUN_COLUMNS = [field.name for field in dataclasses.fields(Run)][:-2]

TOKEN_COLUMNS = [field.name for field in dataclasses.fields(Token)]


def fragments() -> dict[str, Any]:
    """The column lists, and the conditions that several statements share, as the statements name them."""
    return {
        "job_columns": ", ".join(f"j.{name}" for name in JOB_COLUMNS),
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


def job(row: Row) -> Job:
    values = dict(zip(JOB_COLUMNS, row, strict=True))
    values["status"] = State(values["status"])
    values["stop"] = Stop(values["stop"]) if values["stop"] else None
    values["failure_kind"] = FailureKind(values["failure_kind"]) if values["failure_kind"] else None
    return Job(**values)


def run(row: Row) -> Run:
    values = list(row)
    values[6] = State(values[6]) if values[6] is not None else None
    values[11] = FailureKind(values[11]) if values[11] else None
    return Run(*values)

"""The database in the end, as Python values: every row of every table, and the events in order."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from headway.model.jobs.states import State
from headway.store.db import Database


@dataclass(frozen=True)
class Event:
    id: int
    thing: str
    thing_id: int
    kind: str
    status: int | None
    actor: dict[str, str]
    fence: int | None
    data: dict[str, Any]


class Record:
    """The database in the end, as Python values."""

    def __init__(self, rows: dict[str, list[dict[str, Any]]]) -> None:
        self.rows = rows
        self.jobs = {row["id"]: row for row in self.rows["hw_job"]}
        self.results = {row["job_id"]: json.loads(row["body"]) for row in self.rows["hw_result"]}
        self.reports = {row["job_id"]: row for row in self.rows["hw_report"]}
        self.events = [
            Event(
                row["id"], row["thing"], row["thing_id"], row["kind"], row["status"], json.loads(row["actor"]),
                row["fence"], json.loads(row["data"] or "{}"),
            )
            for row in self.rows["hw_event"]
        ]  # fmt: skip
        self.events.sort(key=lambda event: event.id)
        self.followers: dict[int, list[int]] = defaultdict(list)
        for job_id, row in sorted(self.jobs.items()):
            if row["retry_of"] is not None:
                self.followers[row["retry_of"]].append(job_id)

    def chain(self, job_id: int) -> list[int]:
        """A job and all that retry it, the oldest first."""
        found = [job_id]
        for one in found:
            found += self.followers[one]
        return sorted(found)

    def root(self, job_id: int, *, automatic: bool = False) -> int:
        """The first job of its chain, or of the part that was made automatically."""
        while (parent := self.jobs[job_id]["retry_of"]) is not None:
            if automatic and not self.jobs[job_id]["retry_auto"]:
                break
            job_id = parent
        return job_id

    def state(self, job_id: int) -> str:
        return State(self.jobs[job_id]["status"]).name


COLUMNS = {
    "sqlite": "select m.name, c.name from sqlite_schema m, pragma_table_info(m.name) c where m.type = 'table' "
    "and m.name like 'hw_%' order by m.name, c.cid",
    "postgres": "select table_name, column_name from information_schema.columns where table_schema = 'public' "
    "order by table_name, ordinal_position",
}


def dump(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table, in an order that does not depend on the database."""
    with database.read() as tx:
        query = tx.connection.execute  # type: ignore[attr-defined]
        columns: dict[str, list[str]] = defaultdict(list)
        for table, column in query(COLUMNS[database.dialect]).fetchall():
            columns[table].append(column)
        found = {table: query(f"select * from {table}").fetchall() for table in columns}
    return {
        table: [dict(zip(columns[table], row, strict=True)) for row in sorted(rows, key=repr)]
        for table, rows in found.items()
    }

"""Runs a statement in the caller's own transaction, on the caller's connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.rows import tuple_row

from headway.errors import BadInput
from headway.store.db import Row
from headway.store.postgres import session
from headway.store.postgres.errors import translated
from headway.store.postgres.session import SessionFacts


def run(connection: Any, texts: Sequence[str], params: Mapping[str, object], facts: SessionFacts) -> list[Row]:
    if not isinstance(connection, psycopg.Connection):
        raise BadInput("connection= takes a psycopg connection (psycopg.Connection)", field="connection")
    before, after = session.path_calls(facts)
    try:
        with translated(), connection.pipeline():
            # The caller's connection may have a row factory of its own.
            cursors = [connection.cursor(row_factory=tuple_row) for _ in texts]
            connection.execute(*before)
            sent = [cursor.execute(text, params) for cursor, text in zip(cursors, texts, strict=True)]
            connection.execute(*after)
    except (pg.UndefinedTable, pg.PipelineAborted) as error:
        raise BadInput(
            "connection= belongs to another database", hint="pass a connection to Headway's", field="connection"
        ) from error
    return [row for cursor in sent if cursor.description for row in cursor.fetchall()]

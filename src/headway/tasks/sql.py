"""The built-in task `sql`: runs a script as one transaction.

The settings name the databases that it may use.
"""

from __future__ import annotations

import base64
import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

from headway.engine.execution.context import Context
from headway.engine.execution.output import clean, shorten
from headway.engine.tasks.signature import Rule
from headway.errors import BadInput, Fail, Retry
from headway.model.values.json import JSON_LIMIT, to_json
from headway.tasks.common import BuiltIn, bad, check

if TYPE_CHECKING:
    import apsw
    import psycopg

MOST_ROWS = 100
LOCK_SECONDS = 60.0
CONNECT_SECONDS = 15

_ROOM = JSON_LIMIT // 2
_LONGEST = 4096
_STEPS = 10_000  # steps of SQLite's virtual machine between two checks for a stop request: some milliseconds
_ADDRESS = re.compile(r"://|@|(?i:(host|dbname|user|password)\s*=)")
_TAKES_OVER = ("COMMIT", "BEGIN", "START TRANSACTION", "PREPARE TRANSACTION")
_ONE = "the script runs as one transaction: remove BEGIN, COMMIT and ROLLBACK"

SqlValues = list[Any] | dict[str, Any]


def _connection_problem(name: str) -> str | None:
    if _ADDRESS.search(name):
        return "must be the name of a connection in the settings: an address would be stored with its password"
    return None if name.strip() else "is empty: give the name of a connection in the settings"


def _script_problem(script: str) -> str | None:
    return None if script.strip() else "is empty: give the statements to run"


def _params_problem(params: SqlValues | None) -> str | None:
    values = params.items() if isinstance(params, dict) else enumerate(params or [])
    for name, value in values:
        if isinstance(value, list) or (isinstance(value, dict) and not value.keys() & {"$secret", "$result"}):
            return f"has a list or a dict at {name!r:.60}: a statement takes texts, numbers, true, false and null"
    return None


def run_sql(
    ctx: Context,
    connection: Annotated[str, Rule(_connection_problem)],
    script: Annotated[str, Rule(_script_problem)],
    params: Annotated[SqlValues | None, Rule(_params_problem)] = None,
) -> dict[str, Any]:
    """Runs a script and commits it.

    Returns the rows of its last query and the number of rows changed.
    """
    check("connection", _connection_problem(connection))
    check("script", _script_problem(script))
    check("params", _params_problem(params))
    address = ctx._work.connection
    if address is None:
        bad("connection", "is not a connection in the settings")
    run = _postgres if "://" in address else _sqlite
    return run(ctx, f"connection {connection}", address, script, params)


sql = BuiltIn("sql", run_sql)


# --- the result ---------------------------------------------------------------------------------------------------


class _Found:
    """The first rows of the last query, and the number of rows changed."""

    def __init__(self) -> None:
        self.changed = 0
        self._names: list[str] | None = None
        self._rows: list[dict[str, Any]] = []
        self._room = 0
        self._more = False

    def begin(self, names: Sequence[str]) -> None:
        self._names = [name if name not in names[:n] else f"{name}_{n + 1}" for n, name in enumerate(names)]
        self._rows, self._room, self._more = [], _ROOM, False

    def add(self, row: Sequence[Any]) -> None:
        if self._more or self._names is None:
            return
        safe = {clean(name): _safe(value) for name, value in zip(self._names, row, strict=True)}
        self._room -= len(json.dumps(safe, ensure_ascii=False).encode())
        self._more = len(self._rows) == MOST_ROWS or self._room < 0
        if not self._more:
            self._rows.append(safe)

    def result(self) -> dict[str, Any]:
        """Returns the result of the job; raises BadInput if it cannot be stored.

        Call it before the commit, so that a result that cannot be stored rolls the script back.
        """
        result: dict[str, Any] = {"rows_affected": self.changed}
        if self._names is not None:
            result["rows"] = self._rows
            result["truncated"] = self._more
        to_json(result, field="result")
        return result


def _safe(value: Any) -> Any:
    """Returns a database value as JSON. Values that JSON does not know become text."""
    match value:
        case None | bool():
            return value
        case str():
            return shorten(clean(value), _LONGEST)
        case int():
            return value if -(2**63) <= value < 2**63 else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray() | memoryview():
            return shorten(base64.b64encode(value).decode(), _LONGEST)
        case list() | tuple():
            return [_safe(item) for item in value]
        case dict():
            return {clean(str(name)): _safe(item) for name, item in value.items()}
    return shorten(clean(value.isoformat() if hasattr(value, "isoformat") else str(value)), _LONGEST)


# --- SQLite -------------------------------------------------------------------------------------------------------


def _sqlite(ctx: Context, name: str, path: str, script: str, params: SqlValues | None) -> dict[str, Any]:
    import apsw

    guard = _Guard(ctx)
    with _sqlite_words(name, guard), closing(_open_file(path)) as connection:
        connection.set_busy_handler(guard.wait)
        connection.set_progress_handler(guard.stopping, _STEPS)
        try:
            connection.execute("begin immediate")
        except apsw.ReadOnlyError:
            connection.execute("begin")
        connection.authorizer = guard.allows
        found = _run_script(connection, script, params)
        result = found.result()
        ctx.check()
        connection.authorizer = None
        connection.execute("commit")
        return result


def _open_file(path: str) -> apsw.Connection:
    import apsw

    return apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)  # never creates the file: a missing one is an error


def _run_script(connection: apsw.Connection, script: str, params: SqlValues | None) -> _Found:
    found, before = _Found(), connection.total_changes()

    def begin(cursor: apsw.Cursor, _sql: str, _bindings: object) -> bool:
        if columns := cursor.get_description():
            found.begin([column[0] for column in columns])
        return True

    cursor = connection.cursor()
    cursor.exec_trace = begin
    try:
        for row in cursor.execute(script, params or None):
            found.add(row)
    except KeyError as error:
        bad("params", f"have no value for {error.args[0]!r}")
    found.changed = connection.total_changes() - before
    return found


class _Guard:
    """Answers SQLite's callbacks: may a statement run, wait for a lock, stop."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.refused = ""
        self._until = time.monotonic() + LOCK_SECONDS

    def allows(self, action: int, what: str | None, *_: object) -> int:
        import apsw

        if action == apsw.SQLITE_TRANSACTION:
            self.refused = f"has {what}: {_ONE}"
        elif action in (apsw.SQLITE_ATTACH, apsw.SQLITE_DETACH):
            self.refused = "attaches another file: add that file to connections in the settings"
        else:
            return apsw.SQLITE_OK
        return apsw.SQLITE_DENY

    def wait(self, calls: int) -> bool:
        if calls == 0:
            self.ctx.log.info("another program has locked the database: waiting")
        self.ctx.check()
        time.sleep(0.02)
        return time.monotonic() < self._until

    def stopping(self) -> bool:
        return self.ctx.stopping


@contextmanager
def _sqlite_words(name: str, guard: _Guard) -> Iterator[None]:
    import apsw

    try:
        yield
    except apsw.CantOpenError:
        raise Retry(f"{name}: the file does not exist or cannot be opened") from None
    except apsw.BusyError:
        raise Retry(f"{name}: another program held its lock for {LOCK_SECONDS:g} seconds") from None
    except apsw.InterruptError:
        guard.ctx.check()
        raise Retry(f"{name}: interrupted") from None
    except apsw.BindingsError as error:
        bad("params", f"do not fit the script: {error}")
    except (apsw.SQLError, apsw.AuthError) as error:
        if guard.refused:
            bad("script", guard.refused)
        raise Fail(f"{name}: {error}") from None
    except apsw.Error as error:
        raise Retry(f"{name}: {error}") from None


# --- PostgreSQL ---------------------------------------------------------------------------------------------------


def _postgres(ctx: Context, name: str, address: str, script: str, params: SqlValues | None) -> dict[str, Any]:
    psycopg = _driver(name)
    with _postgres_words(name), closing(_connect(ctx, name, address)) as connection:
        try:
            found = _Found()
            cursor = connection.execute(script, params or None)
            _read_results(cursor, found)
            if connection.info.transaction_status is not psycopg.pq.TransactionStatus.INTRANS:
                raise Fail(f"{name}: {_ONE} (part of it is stored already)")
            result = found.result()
            ctx.check()
            connection.commit()
            return result
        except BaseException:
            # Otherwise the server would continue a query after its client is gone.
            if connection.info.transaction_status is psycopg.pq.TransactionStatus.ACTIVE:
                with suppress(psycopg.Error):
                    connection.cancel_safe(timeout=2.0)
            raise


def _driver(name: str) -> Any:
    try:
        import psycopg
    except ImportError:
        raise BadInput(
            f"{name} is on PostgreSQL, and this worker has no driver for it",
            hint="pip install 'headway[postgres]'",
            code="bad_params",
        ) from None
    return psycopg


def _connect(ctx: Context, name: str, address: str) -> psycopg.Connection[Any]:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    facts: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, "fallback_application_name": f"headway {ctx.job_id}"}
    try:
        given = conninfo_to_dict(address)
        # A client-side cursor inserts the params itself, so that a script of several statements can take params.
        return psycopg.connect(**{**facts, **given}, cursor_factory=psycopg.ClientCursor)
    except psycopg.Error as error:
        text = str(error).strip() or type(error).__name__
        raise Retry(f"{name}: cannot connect: {_without_address(text, address)}") from None


def _without_address(text: str, address: str) -> str:
    from psycopg import Error
    from psycopg.conninfo import conninfo_to_dict

    with suppress(Error):
        for value in sorted(map(str, conninfo_to_dict(address).values()), key=len, reverse=True):
            text = text.replace(value, "***") if value else text
        return text
    return "its address cannot be read"


def _read_results(cursor: psycopg.Cursor[Any], found: _Found) -> None:
    """Reads one result for each statement of the script.

    Raises Fail for a statement that ends the transaction.
    """
    more: bool | None = True
    while more:
        status = cursor.statusmessage or ""
        if status.startswith(_TAKES_OVER):
            raise Fail(f"the script has {status}: {_ONE} (part of it is stored already)")
        if cursor.description:
            found.begin([column.name for column in cursor.description])
            for row in cursor.fetchmany(MOST_ROWS + 1):
                found.add(row)
        if status.split(" ")[0] in ("INSERT", "UPDATE", "DELETE", "MERGE"):
            found.changed += max(0, cursor.rowcount)
        more = cursor.nextset()


@contextmanager
def _postgres_words(name: str) -> Iterator[None]:
    import psycopg

    try:
        yield
    except psycopg.ProgrammingError as error:
        if error.sqlstate is None:
            bad("params", f"do not fit the script: {error}")
        raise Fail(f"{name}: {error}") from None
    except psycopg.Error as error:
        raise Retry(f"{name}: {str(error).strip() or type(error).__name__}") from None

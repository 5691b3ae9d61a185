"""Session settings on PostgreSQL, whatever server, role or pooler set.

Headway configures a connection of its own once, when it is opened. Behind a transaction pooler a session is shared:
there every transaction sets what it needs, for itself alone, in the message that begins it.
"""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from headway.errors import BadInput, Unreachable
from headway.store.postgres.url import NOT_UNDERSTOOD, misread
from headway.store.statements import blocks, sql_text

CONNECT_SECONDS = 5.0
# The server ends a write transaction that is idle for this long: its process is frozen, or its network gone.
IDLE_SECONDS = 5
# A snapshot blocks no other transaction, but keeps old rows alive.
IDLE_SNAPSHOT_SECONDS = 600
# Longer than a transaction may be idle: a lock that is still taken by then has another cause.
LOCK_SECONDS = 10

_FIXED = {
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "statement_timeout": "0",
    "lock_timeout": f"{LOCK_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
    "row_security": "on",
    "standard_conforming_strings": "on",
    "transform_null_equals": "off",
    "extra_float_digits": "1",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "client_min_messages": "warning",
    # The server notices within a minute that a client has vanished.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
_TRANSACTION_TIMEOUT = 170_000
_SINCE = {140_000: {"idle_session_timeout": "0"}, _TRANSACTION_TIMEOUT: {"transaction_timeout": "0"}}
# The server ends a statement whose client has disconnected, if its operating system can detect that.
_OPTIONAL = {"client_connection_check_interval": "10000"}
# The settings of a transaction behind a pooler, the timeouts first, because a short one could end the rest. The other
# settings above do not affect stored data.
_LOCAL = ("statement_timeout", "lock_timeout", "row_security", "transform_null_equals", "extra_float_digits")
_FIRST = "begin isolation level read committed read write"
_TEXTS = blocks(sql_text("session", "postgres.sql"))


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The schema of Headway's tables, and the initial settings of a session."""

    version: int
    search_path: str | None
    synchronous_commit: str
    replication_role: str
    # The session began with a timeout of statements or of transactions.
    hurried: bool
    optional: bool = False

    def settings(self) -> dict[str, str]:
        """Returns the settings of a session that is Headway's own."""
        found = dict(_FIXED) | (_OPTIONAL if self.optional else {}) | self._own()
        for version, more in _SINCE.items():
            found |= more if self.version >= version else {}
        return found

    def local(self) -> dict[str, str]:
        """Returns the settings of a transaction behind a pooler."""
        limit = {"transaction_timeout": "0"} if self.version >= _TRANSACTION_TIMEOUT else {}
        return limit | {name: _FIXED[name] for name in _LOCAL} | self._own()

    def local_text(self, idle: int) -> str:
        """Returns the same settings as part of the message that begins a transaction."""
        every = self.local() | {"idle_in_transaction_session_timeout": f"{idle}s"}
        return "".join(f"; set local {name} = {_written(name, value)}" for name, value in every.items())

    def _own(self) -> dict[str, str]:
        """Returns the settings that depend on the installation.

        Only `synchronous_commit = off` loses acknowledged commits on the server itself. The other levels concern
        replicas and stay as the administrator set them.
        """
        commit = "on" if self.synchronous_commit == "off" else self.synchronous_commit
        found = {"synchronous_commit": commit}
        if self.search_path is not None:
            found["search_path"] = self.search_path
        if self.replication_role != "origin":  # otherwise triggers would not fire, including the outbox
            found["session_replication_role"] = "origin"
        return found


def _written(name: str, value: str) -> str:
    """Quotes a setting's value; a search path is a list of names already quoted."""
    return value if name == "search_path" else f"'{value}'"


class Session(psycopg.Connection[Any]):
    """A connection that knows whether its session is Headway's own."""

    own = False


def refuse_misread(url: str, *, field: str) -> None:
    """Refuses an invalid address.

    The driver's own message is not passed on, because it quotes passwords.
    """
    try:
        wrong = misread(conninfo_to_dict(url))
    except psycopg.ProgrammingError:
        wrong = True
    if wrong:
        raise BadInput(f"{field}: {NOT_UNDERSTOOD}", field=field)


def address(url: str) -> str:
    """Returns the address with Headway's defaults, which the URL may override.

    The client notices a vanished server within a minute, and the server knows this process by name.
    """
    defaults: dict[str, Any] = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
    defaults |= {"tcp_user_timeout": 60_000, "application_name": os.environ.get("PGAPPNAME") or process_name()}
    return make_conninfo(**{**defaults, **conninfo_to_dict(url), "client_encoding": "utf8"})


def process_name() -> str:
    """Returns the application name of this process; PostgreSQL keeps 63 bytes of it."""
    return f"headway {socket.gethostname()[:40]}:{os.getpid()}"


@contextmanager
def patient(connection: Session) -> Iterator[None]:
    """Begins a session with a transaction that no timeout of the role or the server ends.

    The message that begins it switches the timeouts off. It sets nothing for later transactions, because the session
    may be shared.
    """
    limits = ["statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout"]
    if connection.info.server_version >= _TRANSACTION_TIMEOUT:
        limits.insert(0, "transaction_timeout")
    off = "".join(f"; set local {name} = 0" for name in limits)
    connection.execute(f"{_FIRST}{off}".encode(), prepare=False)
    yield
    connection.execute("commit", prepare=False)


def look(connection: psycopg.Connection[Any]) -> SessionFacts:
    """Reads the facts that differ between installations.

    Refuses a session without a schema for Headway's tables.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        (row,) = cursor.execute(_TEXTS["look"], prepare=False).fetchall()
        if row[0] is None:
            ((path, user),) = cursor.execute(_TEXTS["path"], prepare=False).fetchall()
            text = f"the search path of the user {user} ({path or 'empty'}) names no schema for Headway's tables"
            raise Unreachable(f"{text}: run `alter role {user} set search_path = public`, or name another schema there")
    return SessionFacts(connection.info.server_version, *row)


def settle(connection: Session, found: SessionFacts) -> bool:
    """Configures a session of Headway's own. Returns False if it is shared.

    It takes one round trip. A pooler reports another process number to its client than the server does; such a session
    stays unchanged.
    """
    given = {"settings": json.dumps(found.settings()), "pid": connection.info.backend_pid}
    try:
        connection.own = bool(connection.execute(_TEXTS["settle"], given, prepare=False).fetchall())
        if not connection.own and found.replication_role != "origin":
            connection.execute(*local_call(found), prepare=False)  # as every transaction will
    except psycopg.errors.InsufficientPrivilege as error:
        text = "session_replication_role disables triggers, and this user may not change it"
        raise Unreachable(text, hint="run `alter role … reset session_replication_role`") from error
    if not connection.own:
        connection.prepare_threshold = None
    return connection.own


def can_check_clients(connection: Session) -> bool:
    """Returns True if the server can detect that a client has disconnected."""
    given = {"settings": json.dumps(_OPTIONAL), "pid": connection.info.backend_pid}
    try:
        return bool(connection.execute(_TEXTS["settle"], given, prepare=False).fetchall())
    except psycopg.errors.InvalidParameterValue:
        return False


def local_call(found: SessionFacts) -> tuple[str, Mapping[str, object]]:
    """Returns the statement that configures one transaction."""
    every = found.local() | {"idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s"}
    return _TEXTS["settle_transaction"], {"settings": json.dumps(every)}


def path_calls(found: SessionFacts) -> tuple[tuple[str, Mapping[str, object]], tuple[str, Mapping[str, object]]]:
    """Returns statements that set and restore a caller's search path."""
    return (_TEXTS["take_path"], {"path": found.search_path}), (_TEXTS["give_back_path"], {})


def has_died(connection: psycopg.Connection[Any]) -> bool:
    """Returns True if an idle connection is closed or has unread data.

    An idle connection has data only if the server is closing it. The check needs no round trip and comes before the
    first statement: afterwards it would be unknown whether the statement had run.
    """
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def at_rest(connection: psycopg.Connection[Any]) -> bool:
    """Returns True unless an interrupt stopped the driver halfway."""
    idle = connection.pgconn.transaction_status not in (TransactionStatus.ACTIVE, TransactionStatus.UNKNOWN)
    return idle and not connection.pgconn.pipeline_status and not connection.lock.locked()

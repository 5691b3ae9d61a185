"""The second wall around a tenant: on PostgreSQL, row-level security for the transactions of the API and the dashboard.

What a statement forgets to ask for, the database adds: rows of other tenants are not there, and cannot be written. It
holds for one transaction at a time, so it needs no session and works behind a transaction pooler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headway.store.db import Database, Row, Tx, Waiter

if TYPE_CHECKING:
    from headway.store.postgres import PostgresDatabase, PostgresTx

ROLE = "headway_tenant"
ON = "on"


def wall_state(tx: Tx) -> str:
    """`on`, or why there is none and what to do about it."""
    if tx.database.dialect != "postgres":
        return "none: SQLite has no row-level security, every statement asks for its tenant itself"
    ((roles, member, granted, secured, user),) = tx.run("wall_state_postgres")
    if roles and member and granted and secured:
        return ON
    if not roles:
        return f"off: there is no role {ROLE}: let a superuser make it, and grant it as docs/tenants.md says"
    if not member:
        return f"off: {user} may not become {ROLE}: grant {ROLE} to {user}"
    return f"off: {ROLE} may not use the tables: grant it what docs/tenants.md says"


def walled(database: Database, tenant_id: int) -> Database:
    """The same database as one tenant sees it. Where there can be no wall, the database as it is."""
    if database.dialect != "postgres":
        return database
    with database.read() as tx:
        stands = wall_state(tx) == ON
    return Walled(database, tenant_id) if stands else database  # type: ignore[arg-type]


class Walled(Database):
    """Every transaction begins by becoming the role of tenants; connections are the plain database's own."""

    dialect = "postgres"

    def __init__(self, database: PostgresDatabase, tenant_id: int) -> None:
        self.inner = database
        self.tenant_id = tenant_id
        self.url, self.frozen, self.clock = database.url, database.frozen, database.clock
        self.waiters = database.waiters
        self.wall = f"; set local role {ROLE}; set local headway.tenant_id = '{int(tenant_id)}'"

    def beyond(self) -> Database:
        return self.inner

    def begin(self, label: str) -> PostgresTx:
        return self._behind(self.inner.begin(label, self.wall))

    def begin_read(self) -> PostgresTx:
        return self._behind(self.inner.begin_read(self.wall))

    def _behind(self, tx: PostgresTx) -> PostgresTx:
        tx.texts, tx.behind = self.inner.walled_texts, self.tenant_id
        return tx

    def once(self, name: str, /, **params: object) -> list[Row]:
        return self.transact(name, lambda tx: tx.run_all((name, params), commit=True)[0])

    # --- as it is ---

    def end(self, tx: Tx) -> None:
        self.inner.end(tx)

    def run_on(self, connection: Any, name: str, params: Any) -> list[Row]:
        return self.inner.run_on(connection, name, params)

    def waiter(self) -> Waiter:
        return self.inner.waiter()

    def execute_script(self, tx: Tx, text: str) -> None:
        self.inner.execute_script(tx, text)

    @property
    def watchers(self) -> list[Waiter]:
        return self.inner.watchers

    @watchers.setter
    def watchers(self, found: list[Waiter]) -> None:
        self.inner.watchers = found

    def announce(self, besides: Waiter | None = None) -> None:
        self.inner.announce(besides)

    def check(self) -> list[str]:
        return self.inner.check()

    def close(self) -> None:
        self.inner.close()

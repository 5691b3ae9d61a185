"""Row-level security on PostgreSQL, for the API and the dashboard.

It is the second protection of a tenant: where a statement forgets its tenant, PostgreSQL hides the rows of other
tenants and refuses to write them. It is set per transaction, so it works behind a transaction pooler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headway.store.db import Database, LockTaken, Row, Tx, Waiter

if TYPE_CHECKING:
    from headway.store.postgres.database import PostgresDatabase
    from headway.store.postgres.transaction import PostgresTx

ROLE = "headway_tenant"


@dataclass(frozen=True, slots=True)
class RowSecurity:
    """The state of row-level security: on, off or none; why it is not on, and what to do about it."""

    state: str
    why: str | None = None
    hint: str | None = None

    @property
    def enabled(self) -> bool:
        return self.state == "on"

    def __str__(self) -> str:
        return ": ".join(part for part in (self.state, self.why, self.hint) if part is not None)


ON = RowSecurity("on")
NONE = RowSecurity("none", "SQLite has no row-level security; every statement filters by tenant itself")


def row_security(tx: Tx) -> RowSecurity:
    """Reads the state of row-level security."""
    if tx.database.dialect != "postgres":
        return NONE
    ((roles, member, granted, secured, user),) = tx.run("wall_state_postgres")
    if roles and member and granted and secured:
        return ON
    if not roles:
        hint = "let a superuser create it, and grant it as docs/tenants.md says"
        return RowSecurity("off", f"the role {ROLE} does not exist", hint)
    if not member:
        return RowSecurity("off", f"{user} is no member of {ROLE}", f"grant {ROLE} to {user}")
    return RowSecurity("off", f"{ROLE} may not use the tables", "grant it what docs/tenants.md says")


def walled(database: Database, tenant_id: int) -> Database:
    """Returns the database as one tenant sees it.

    Returns the database itself where row-level security is off.
    """
    if database.dialect != "postgres":
        return database
    with database.read() as tx:
        enabled = row_security(tx).enabled
    return TenantScopedDatabase(database, tenant_id) if enabled else database  # type: ignore[arg-type]


class TenantScopedDatabase(Database):
    """A database whose transactions take the tenant role."""

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
        return self._scope(self.inner.begin(label, self.wall))

    def begin_read(self) -> PostgresTx:
        return self._scope(self.inner.begin_read(self.wall))

    def _scope(self, tx: PostgresTx) -> PostgresTx:
        tx.texts, tx.behind = self.inner.walled_texts, self.tenant_id
        return tx

    def once(self, name: str, /, **params: object) -> list[Row]:
        return self.transact(name, lambda tx: tx.run_all((name, params), commit=True)[0])

    # --- passed on ---

    def end(self, tx: Tx) -> None:
        self.inner.end(tx)

    def judge_lock(self, error: LockTaken) -> None:
        self.inner.judge_lock(error)

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

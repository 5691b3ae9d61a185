"""The service that all requests share: the database, clients, the event stream."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headway.api.http.shares import Shares
from headway.clock import Clock, SystemClock
from headway.engine.client.client import Client
from headway.engine.events.tail import Tail
from headway.engine.monitoring.metrics import Metrics
from headway.engine.monitoring.readiness import Health, Round, ready
from headway.model.access.cookies import CookieKey
from headway.model.access.permissions import Role, Visitor
from headway.model.jobs.job import Actor
from headway.store.db import Database, Tx
from headway.store.postgres.row_security import walled

if TYPE_CHECKING:
    from headway.engine.direct.call import Caller

CLIENTS = 500
# Each direct call occupies a thread while it waits and runs.
DIRECT_CALLS = 200
# Time that the tail of events gets to end; it ends after the read in progress.
TAIL_SECONDS = 5.0
# The name of callers without a token; their id is the address of the connection.
ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The settings of the HTTP service."""

    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    # Accept requests of this machine without a token, while there is none.
    open_on_loopback: bool = True
    artifacts: Path = Path("headway-artifacts")
    # In seconds; math.inf means no limit.
    direct_wait: float = 300.0
    grace: float = 30.0
    legacy_story: str = "story.generate"
    legacy_research: str = "research.run"
    # None: until the announced end of the old addresses.
    legacy_enabled: bool | None = None


class SettingInForce(NamedTuple):
    """A setting in force: its value without secrets, and the source that gave it."""

    name: str
    value: str
    source: str
    meaning: str


# Tenant, actor, task and Idempotency-Key of a direct call.
KeptPlace = tuple[int, str, str, str]


class UnderWay(Protocol):
    """A direct call in progress, waiting or running."""

    def leave_line(self) -> None: ...

    def end(self) -> None: ...


class Service:
    """Shared by all requests; `settings` lists the settings of the process."""

    def __init__(
        self,
        client: Client,
        terms: ServiceConfig,
        *,
        caller: Callable[[], Caller] | None = None,
        settings: Callable[[], Sequence[SettingInForce]] = tuple,
    ) -> None:
        self.system = client
        self.database: Database = client.database
        self.terms = terms
        self.caller = caller
        self.settings = settings
        self.clock: Clock = SystemClock()
        self.draining = threading.Event()
        self.closing = threading.Event()
        self.direct_calls = Shares(DIRECT_CALLS, "direct calls", "too_many_calls")
        self.under_way: set[UnderWay] = set()
        # Direct calls with an Idempotency-Key. Only the event loop uses it.
        self.kept_calls: dict[KeptPlace, Any] = {}
        self.metrics = Metrics(client.database)
        # State of the whole process. The supervisor replaces it, because it knows the other parts.
        self.health: Callable[[], Health] = lambda: ready(client.database)
        self.rounds: Callable[[], Sequence[Round]] = tuple
        self._lock = threading.Lock()
        self._clients: OrderedDict[tuple[str, str, str, bool], Client] = OrderedDict()
        self._walls: dict[int, Database] = {}
        self._tail: Tail | None = None
        self._cookie_key: CookieKey | None = None

    @property
    def has_cookie_key(self) -> bool:
        return self._cookie_key is not None

    @property
    def cookie_key(self) -> CookieKey:
        """The key that signs cookies; read from the database at the first use."""
        if self._cookie_key is None:  # two threads read the same key
            self._cookie_key = self.system.sessions.cookie_key()
        return self._cookie_key

    @property
    def tail(self) -> Tail:
        """The event stream, started for the first subscriber."""
        with self._lock:
            if self._tail is None:
                self._tail = Tail(self.database)
                self._tail.start()
            return self._tail

    def client(self, visitor: Visitor) -> Client:
        """Returns the client of a visitor, which is kept.

        Concurrent callers thus share group commits.
        """
        key = (visitor.tenant, visitor.actor.text(), visitor.role.value, visitor.system)
        found = self._clients.get(key)
        if found is None:  # outside the lock, because row-level security is checked in the database
            found = self.system.sibling(visitor.actor, visitor.tenant, visitor)
            found.database = self._wall(visitor.tenant_id)
        with self._lock:
            found = self._clients.setdefault(key, found)
            self._clients.move_to_end(key)
            while len(self._clients) > CLIENTS:
                self._clients.popitem(last=False)
            return found

    @contextmanager
    def read(self, visitor: Visitor) -> Iterator[Tx]:
        """Opens a read transaction under row-level security for the visitor's tenant."""
        with self._wall(visitor.tenant_id).read() as tx:
            yield tx

    def _wall(self, tenant_id: int) -> Database:
        found = self._walls.get(tenant_id)
        if found is None:  # outside the lock, because it queries the database
            found = self._walls[tenant_id] = walled(self.database, tenant_id)
        return found

    def anybody(self, tenant: str, peer: str) -> Visitor:
        """Returns the visitor for requests without a token from this address, while no token exists."""
        return Visitor(Actor("user", peer, ANONYMOUS), tenant, self.tenant_id(tenant), Role.ADMIN, system=True)

    def tenant_id(self, name: str) -> int:
        return self.client_of(name).tenant_id

    def client_of(self, tenant: str) -> Client:
        return (
            self.system if tenant == self.system.tenant else self.system.sibling(Actor("user", "", ANONYMOUS), tenant)
        )

    def drain(self) -> None:
        """Takes no more direct calls. Those that run continue; those that wait are answered now."""
        self.draining.set()
        for call in list(self.under_way):
            call.leave_line()

    def close(self) -> None:
        self.drain()
        self.closing.set()
        for call in list(self.under_way):
            call.end()
        if self._tail is not None:
            self._tail.stop()
            self._tail.join(TAIL_SECONDS)  # its descriptors are closed with the database

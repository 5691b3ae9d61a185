"""What the endpoints stand on: one database, one client for each visitor, one tail of the events."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headway.engine.client import Client
from headway.engine.health import Health, Round, ready
from headway.engine.metrics import Metrics
from headway.engine.tail import Tail
from headway.model.access import Role, Visitor
from headway.model.job import Actor
from headway.store.db import Database, Tx
from headway.store.wall import walled

if TYPE_CHECKING:
    from headway.engine.direct import Caller

CLIENTS = 500
# Each direct call has a thread for as long as it waits and runs.
DIRECT_CALLS = 200
LOCAL = Actor("user", "", "local")


@dataclass(frozen=True, slots=True)
class Terms:
    """What the settings say about the service."""

    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    artifacts: Path = Path("headway-artifacts")
    direct_wait: float = 300.0
    grace: float = 30.0
    legacy_story: str = "story.generate"
    legacy_research: str = "research.run"


class Setting(NamedTuple):
    """One setting as it is in force: `value` without its secrets, `source` where it was given."""

    name: str
    value: str
    source: str
    meaning: str


class Service:
    """Shared by all requests of a process. `settings` tells those of the process."""

    def __init__(
        self,
        client: Client,
        terms: Terms,
        *,
        caller: Callable[[], Caller] | None = None,
        settings: Callable[[], Sequence[Setting]] = tuple,
    ) -> None:
        self.system = client
        self.database: Database = client.database
        self.terms = terms
        self.caller = caller
        self.settings = settings
        self.closing = threading.Event()
        self.direct_calls = threading.Semaphore(DIRECT_CALLS)
        # What waits or runs for somebody, and how it is told to end.
        self.under_way: set[Callable[[], None]] = set()
        self.metrics = Metrics(client.database)
        # How the process stands that we are a part of; whoever composes it knows more of its parts.
        self.health: Callable[[], Health] = lambda: ready(client.database)
        self.rounds: Callable[[], Sequence[Round]] = tuple
        self._lock = threading.Lock()
        self._clients: OrderedDict[tuple[str, str], Client] = OrderedDict()
        self._walls: dict[int, Database] = {}
        self._tail: Tail | None = None

    @property
    def tail(self) -> Tail:
        """Begun with the first one who listens."""
        with self._lock:
            if self._tail is None:
                self._tail = Tail(self.database)
                self._tail.start()
            return self._tail

    def client(self, visitor: Visitor) -> Client:
        """The verbs for one visitor. Kept: callers at the same time share their commits."""
        key = (visitor.tenant, visitor.actor.text())
        found = self._clients.get(key)
        if found is None:  # outside the lock: the wall asks the database whether it stands
            found = self.system.sibling(visitor.actor, visitor.tenant)
            found.database = self._wall(visitor.tenant_id)
        with self._lock:
            found = self._clients.setdefault(key, found)
            self._clients.move_to_end(key)
            while len(self._clients) > CLIENTS:
                self._clients.popitem(last=False)
            return found

    @contextmanager
    def read(self, visitor: Visitor) -> Iterator[Tx]:
        """Behind the wall of the visitor's tenant."""
        with self._wall(visitor.tenant_id).read() as tx:
            yield tx

    def _wall(self, tenant_id: int) -> Database:
        found = self._walls.get(tenant_id)
        if found is None:  # outside the lock: it asks the database
            found = self._walls[tenant_id] = walled(self.database, tenant_id)
        return found

    def anybody(self, tenant: str) -> Visitor:
        """Whoever comes while everything is open."""
        return Visitor(LOCAL, tenant, self.tenant_id(tenant), Role.ADMIN, system=True)

    def tenant_id(self, name: str) -> int:
        return self.client_of(name).tenant_id

    def client_of(self, tenant: str) -> Client:
        return self.system if tenant == self.system.tenant else self.system.sibling(LOCAL, tenant)

    def close(self) -> None:
        self.closing.set()
        for end in list(self.under_way):
            end()
        if self._tail is not None:
            self._tail.stop()

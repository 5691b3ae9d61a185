"""One check of the stored records: how it reads them, how it judges them, and for whom it is made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from headway.model.access.secrets import OwnedSecret
from headway.model.checks import Answer
from headway.model.queue.policies import Concurrency
from headway.store.db import Tx

Found = TypeVar("Found")
# Upper bounds on the records that a check reads of all tenants, and on those that the Health page lists of one tenant.
READ, LISTED = 1_000, 20


class Audience(Enum):
    """Where the answer of a check is shown.

    `doctor` makes every check, so it is none of them.
    """

    READYZ = "readyz"
    HEALTH_PAGE = "health page"


@dataclass(frozen=True, slots=True)
class Expected:
    """The part of the settings that the records are compared with. `tasks` are those that this process knows.

    Settings that name no secret, or no connection, say nothing about those of the workers, unless `strict`.
    """

    tasks: Collection[str] = ()
    secrets: Mapping[str, OwnedSecret] = field(default_factory=dict)
    connections: Collection[str] = ()
    concurrency: Concurrency = field(default_factory=Concurrency)
    resources: Mapping[str, int] = field(default_factory=dict)
    recovery_interval: float = 30.0
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Scope:
    """The records that a check reads: those of one tenant, or of all tenants if `tenant_id` is None.

    `at` is the time if the caller has read it already.
    """

    tx: Tx
    tenant_id: int | None = None
    at: int | None = None
    expected: Expected = field(default_factory=Expected)

    @property
    def now(self) -> int:
        return self.tx.now() if self.at is None else self.at


@dataclass(frozen=True, slots=True)
class Check(Generic[Found]):
    """A check. `question` tells the reader of the Health page what was checked.

    `dialect` is the only kind of database that the check applies to; None means both.
    """

    name: str
    read: Callable[[Scope], Found]
    judge: Callable[[Found], Answer]
    audiences: frozenset[Audience] = frozenset()
    question: str | None = None
    dialect: str | None = None

    def answer(self, scope: Scope) -> Answer:
        return self.judge(self.read(scope))

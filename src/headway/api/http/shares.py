"""Shares of what a server has few of: a tenant has half of the tenants' places at most, the system a tenth.

Long requests take turns: one of each tenant at a time, and few of all.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import anyio
from anyio import CapacityLimiter, to_thread

from headway.errors import Busy
from headway.model.access.permissions import Visitor

T = TypeVar("T")
# A tenant has one place in this many of those of all tenants.
TENANTS = 2
# The system has one place in this many.
SYSTEM = 10
RETRY_AFTER = 5
# Long requests of tenants that work at once. Each takes seconds of the interpreter and of the database.
LONG = 2
# Long requests of a tenant that wait for their turn.
WAITING = 20
# Threads that identify callers, and threads of the probes: other requests have threads of their own.
IDENTIFY, PROBES = 8, 32


def of_tenants(most: int) -> int:
    return max(1, most - max(1, most // SYSTEM))


def of_tenant(most: int) -> int:
    return max(1, of_tenants(most) // TENANTS)


class Shares:
    """Places that callers take and leave, in any thread."""

    def __init__(self, most: int, what: str, code: str) -> None:
        self.most = most
        self.what = what
        self.code = code
        self._lock = threading.Lock()
        # Places by tenant; those of the system's callers have the key None.
        self._taken: Counter[int | None] = Counter()

    @property
    def taken(self) -> int:
        return self._taken.total()

    def enter(self, visitor: Visitor) -> None:
        """Takes a place. Refuses a caller whose share is used up."""
        key = _key(visitor)
        with self._lock:
            if key is not None:
                self._check(key, visitor.tenant)
            if self.taken >= self.most:
                raise self._busy(f"this server has {self.most} {self.what}, its limit")
            self._taken[key] += 1

    def _check(self, tenant_id: int, name: str) -> None:
        if self._taken[tenant_id] >= of_tenant(self.most):
            text = f"the tenant {name!r} has {of_tenant(self.most)} {self.what} here, the limit for one tenant"
            raise self._busy(text, code=self.code)
        if self.taken - self._taken[None] >= of_tenants(self.most):
            raise self._busy(f"this server has {of_tenants(self.most)} {self.what} of tenants, its limit")

    def leave(self, visitor: Visitor) -> None:
        with self._lock:
            self._taken[_key(visitor)] -= 1
            self._taken += Counter()  # drops what is zero

    def _busy(self, text: str, code: str | None = None) -> Busy:
        return Busy(text, hint="try again later", code=code, retry_after=RETRY_AFTER)


def _key(visitor: Visitor) -> int | None:
    return None if visitor.system else visitor.tenant_id


class LongRequests:
    """The long requests of a server. Used in its event loop only.

    They wait outside of the threads, so that other requests of the same tenant, and those of others, go on.
    """

    def __init__(self) -> None:
        self.tenants = CapacityLimiter(LONG)
        self.system = CapacityLimiter(1)
        self.probes = CapacityLimiter(PROBES)
        self._lines: dict[int, anyio.Lock] = {}
        self._waiting: Counter[int] = Counter()

    async def run(self, visitor: Visitor, work: Callable[..., T], **given: Any) -> T:
        """Runs a long request in a thread when it has its turn."""
        key = _key(visitor)
        if key is None:
            return await to_thread.run_sync(partial(work, **given), limiter=self.system)
        if self._waiting[key] > WAITING:
            text = f"the tenant {visitor.tenant!r} has {WAITING} long requests that wait here, the limit for one tenant"
            raise Busy(text, hint="try again later", code="too_many_requests", retry_after=RETRY_AFTER)
        self._waiting[key] += 1
        try:
            async with self._lines.setdefault(key, anyio.Lock()):
                return await to_thread.run_sync(partial(work, **given), limiter=self.tenants)
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]
                self._lines.pop(key, None)

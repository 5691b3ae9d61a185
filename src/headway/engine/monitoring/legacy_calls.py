"""Counts the calls of deprecated addresses in one process, and logs each caller once a day."""

from __future__ import annotations

import logging
import threading
from collections import Counter

from headway.clock import SECOND

log = logging.getLogger("headway")
DAY = 24 * 3600 * SECOND
# A User-Agent is any text, and each is a time series of its own; further clients share one name.
CLIENTS = 100
OTHER = "other"
LONGEST = 60


class LegacyCalls:
    """The calls so far, by path and client. Requests of many threads count here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: Counter[tuple[str, str]] = Counter()
        self._clients: set[str] = set()
        self._logged: dict[tuple[str, str], int] = {}

    def count(self, path: str, client: str, now: int) -> None:
        with self._lock:
            call = (path, self._known(client))
            self._counted[call] += 1
            first = self._logged.get(call) != now // DAY
            self._logged[call] = now // DAY
        if first:
            log.warning("the deprecated address %s is called by %s: docs/legacy.md names the new one", *call)

    def counts(self) -> dict[tuple[str, str], int]:
        with self._lock:
            return dict(self._counted)

    def _known(self, client: str) -> str:
        name = "".join(letter if letter.isprintable() else "?" for letter in client[:LONGEST]).strip() or OTHER
        if name not in self._clients and len(self._clients) >= CLIENTS:
            return OTHER
        self._clients.add(name)
        return name

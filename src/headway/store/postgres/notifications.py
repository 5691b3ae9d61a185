"""Wake-ups between processes by LISTEN and NOTIFY."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg

from headway.errors import HeadwayError, Unreachable
from headway.store.db import Waiter
from headway.store.postgres import session
from headway.store.postgres.session import CONNECT_SECONDS
from headway.wakeup import Wakeup

if TYPE_CHECKING:
    from headway.store.postgres.database import PostgresDatabase

CHANNEL = "headway"
BACKOFF = (0.1, 0.5, 2.0)
# Pause between notifications: otherwise a caller that enqueues job after job would spend every second round trip on
# one.
NOTIFY_APART = 0.002


class PostgresWaiter(Waiter):
    def __init__(self, database: PostgresDatabase) -> None:
        self.database = database
        self.event = Wakeup()

    def wait(self, seconds: float) -> bool:
        woken = self.event.wait(seconds)
        self.event.clear()
        return woken

    def wake(self) -> None:
        self.event.set()

    def close(self) -> None:
        if self in self.database.waiters:
            self.database.waiters.remove(self)
            self.event.set()


class Notifier(threading.Thread):
    """Sends one NOTIFY, in its own transaction, for all commits since the last.

    The first commit is announced at once, commits that follow closely are announced together. A NOTIFY inside the job's
    transaction would halve the commit rate.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(name="headway-notify", daemon=True)
        self.database = database
        self.due = Wakeup()
        self.ended = False

    def run(self) -> None:
        while not self.ended:
            self.due.wait()
            self._send()
            time.sleep(NOTIFY_APART)

    def _send(self) -> None:
        if not self.due.is_set():
            return
        self.due.clear()
        try:
            self.database.once("notify_others", by=self.database.mark)
        except (HeadwayError, psycopg.Error):
            # A notification is a hint: waiting workers poll anyway, and the next commit notifies again.
            return

    def stop(self) -> None:
        self._send()
        self.ended = True
        self.due.set()
        self.join(CONNECT_SECONDS)


class Listener(threading.Thread):
    """Turns every notification into a wake-up.

    It uses a connection of its own, because poolers drop LISTEN.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(name="headway-listen", daemon=True)
        self.database = database
        self.ended = Wakeup()

    def run(self) -> None:
        failures = 0
        while not self.ended.is_set():
            try:
                self._listen()
                failures = 0
            except (psycopg.Error, Unreachable):
                self.ended.wait(BACKOFF[min(failures, len(BACKOFF) - 1)])
                failures += 1

    def _listen(self) -> None:
        with self.database.connect(self.database.listen_url) as connection:
            with session.patient(connection):
                session.settle(connection, session.look(connection))
            connection.execute(f"listen {CHANNEL}")
            self._wake_all()  # for commits before LISTEN took effect
            while not self.ended.is_set():
                for notification in connection.notifies(timeout=60.0, stop_after=1):
                    self.hear(notification.payload)

    def hear(self, by: str) -> None:
        if by != self.database.mark:
            self._wake_all()

    def _wake_all(self) -> None:
        for waiter in list(self.database.waiters):
            waiter.wake()

    def stop(self) -> None:
        self.ended.set()
        if self.is_alive():
            with suppress(HeadwayError, psycopg.Error):  # the thread ends by itself if the server is gone
                self.database.once("notify_others", by="")
            self.join(CONNECT_SECONDS)

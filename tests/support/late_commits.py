"""A line to PostgreSQL on which a COMMIT is late: its client is cut off, and the server gets it some time later."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

# A message of the protocol: its kind, its length with itself, its body.
HEAD = struct.Struct("!cI")
# Parse, bind, describe, execute and close: the server may be sent more before it has to answer.
PIPELINED = (b"P", b"B", b"D", b"E", b"C")
SHORTEST, LONGEST = 0.005, 0.04
PATIENCE = 55.0
# The share of the cut commits that the server never gets.
NEVER = 0.15


@dataclass
class Talk:
    """What one client has sent: the texts of its prepared statements, and whether its transaction stores nothing."""

    near: socket.socket
    far: socket.socket
    texts: dict[bytes, bytes] = field(default_factory=dict)
    begun: bool = False
    reading: bool = False
    rest: bytes = b""

    def messages(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Whole messages: (kind, all bytes). The first one of a connection has no kind."""
        self.rest += data
        while True:
            if not self.begun:
                if len(self.rest) < 4:
                    return
                length = struct.unpack_from("!I", self.rest)[0]
                kind = b""
            else:
                if len(self.rest) < HEAD.size:
                    return
                kind, length = HEAD.unpack_from(self.rest)
                length += 1
            if len(self.rest) < length:
                return
            message, self.rest = self.rest[:length], self.rest[length:]
            # Requests for encryption are answered before the real beginning.
            self.begun = self.begun or message[4:8] not in (b"\x04\xd2\x16\x2f", b"\x04\xd2\x16\x30")
            yield kind, message

    def to_sync(self) -> bytes:
        """The rest of the messages that go together."""
        passed, data = b"", b""
        while True:
            for kind, message in self.messages(data):
                passed += message
                if kind == b"S":
                    return passed
            if not (data := self.near.recv(65_536)):
                return passed

    def commits_with(self, kind: bytes, message: bytes, words: bytes | None) -> bool:
        """Whether this message asks for a commit, or runs a statement with these words, which is a transaction by
        itself. A prepared statement is known by its name from then on."""
        body = message[HEAD.size :] if kind else b""
        if kind in b"QP" and b"begin" in body:
            # A new connection reads and sets its session in a transaction that stores nothing.
            self.reading = b"read only" in body or b"statement_timeout = 0" in body
        if kind == b"Q":
            return body == b"commit\0" and not self.reading
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self.texts[name] = text
        if kind == b"B":
            _, name, _ = body.split(b"\0", 2)
            text = self.texts.get(name, b"")
            return (text == b"commit" and not self.reading) or (words is not None and words in text)
        return False


class LateCommits:
    """Passes everything on. The `next` commits, and a `share` of the others, lose their client: they come later."""

    def __init__(self, url: str, *, seed: int = 0) -> None:
        known = conninfo_to_dict(url)
        self.address = (str(known["host"]), int(str(known.get("port") or 5432)))
        self.listener = socket.create_server(("127.0.0.1", 0))
        place = {"host": "127.0.0.1", "port": self.listener.getsockname()[1]}
        self.url = f"postgresql:///?{urlencode({**known, **place}, quote_via=quote)}"
        self.dice = random.Random(seed)
        self.share = 0.0
        self.next = 0
        # How often the server gets at once what was sent before the commit.
        self.early = 0.5
        self.never = NEVER
        self.words: bytes | None = None
        self.cuts = 0
        self.late = 0
        # Cut commits that the server may still get.
        self.under_way = 0
        self.counting = threading.Lock()
        self.gate: threading.Event | None = None
        self.ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _connect(self) -> socket.socket:
        if self.address[0].startswith("/"):
            far = socket.socket(socket.AF_UNIX)
            far.connect(f"{self.address[0]}/.s.PGSQL.{self.address[1]}")
            return far
        return socket.create_connection(self.address)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                talk = Talk(near, self._connect())
                for end in (talk.near, talk.far):
                    if end.family == socket.AF_INET:
                        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.ends += [talk.near, talk.far]
                threading.Thread(target=self._ask, args=(talk,), daemon=True).start()
                threading.Thread(target=self._answer, args=(talk,), daemon=True).start()

    def _ask(self, talk: Talk) -> None:
        with suppress(OSError):
            passed = b""  # of the messages that go together: up to the one that wants answers
            while data := talk.near.recv(65_536):
                for kind, message in talk.messages(data):
                    if talk.commits_with(kind, message, self.words) and self._chosen():
                        self._cut(talk, passed, message + (talk.to_sync() if kind in PIPELINED else b""))
                        return
                    passed += message
                    if kind not in PIPELINED:
                        talk.far.sendall(passed)
                        passed = b""
        for end in (talk.near, talk.far):
            close(end)

    def _chosen(self) -> bool:
        if self.next:
            self.next -= 1
            return True
        return self.dice.random() < self.share

    def _cut(self, talk: Talk, before: bytes, commit: bytes) -> None:
        with self.counting:
            self.under_way += 1
        try:
            self._commit_late(talk, before, commit)
        finally:
            with self.counting:
                self.under_way -= 1

    def _commit_late(self, talk: Talk, before: bytes, commit: bytes) -> None:
        """The client is told nothing. The commit comes to the server late, alone or with what was sent before it."""
        self.cuts += 1
        early = self.dice.random() < self.early
        if early:
            talk.far.sendall(before)
        close(talk.near)
        if self.gate is None:
            time.sleep(self.dice.uniform(SHORTEST, LONGEST))
        else:
            self.gate.wait(PATIENCE)
        if self.dice.random() < self.never:
            close(talk.far)
            return
        talk.far.sendall(commit if early else before + commit)
        self.late += 1
        with suppress(OSError):
            talk.far.shutdown(socket.SHUT_WR)

    def _answer(self, talk: Talk) -> None:
        with suppress(OSError):
            while data := talk.far.recv(65_536):
                with suppress(OSError):  # the server has to be listened to although its client is gone
                    talk.near.sendall(data)
        for end in (talk.near, talk.far):
            close(end)

    def close(self) -> None:
        close(self.listener)
        for end in self.ends:
            close(end)


def close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextmanager
def late_commits(url: str, *, seed: int = 0) -> Iterator[LateCommits]:
    line = LateCommits(url, seed=seed)
    try:
        yield line
    finally:
        line.close()

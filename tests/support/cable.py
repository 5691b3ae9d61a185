"""A cable between programs and a server: cut with a reset, frozen both ways, slowed, or cut at a COMMIT."""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

RESET = struct.pack("ii", 1, 0)
CHUNK = 65_536
# What makes a change final: PostgreSQL's protocol ends a text with a zero. A job alone is stored by one statement.
FINAL = re.compile(rb"\bcommit\x00|insert into hw_job")
CONNECT_SECONDS = 5.0
# Longer than any test freezes a cable.
LONGEST_FREEZE = 600.0


class Link:
    """One connection through the cable: the program's end and the server's end."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near = near
        self.far = far

    def cut(self) -> None:
        """Both sides see a reset, as from a firewall that forgot the connection."""
        for end in (self.near, self.far):
            reset(end)


class Cable:
    """Listens on a port of its own and passes bytes on to a server: a (host, port), or the path of a socket."""

    def __init__(self, to: tuple[str, int] | str) -> None:
        self.to = to
        self.lock = threading.Lock()
        self.links: list[Link] = []
        self.flowing = threading.Event()
        self.flowing.set()
        self.delay = 0.0
        # How many of the next COMMITs lose their answer (after so many that pass), and how many reach the server late,
        # after a cut.
        self.passing = 0
        self.lose = 0
        self.hold = 0
        self.hold_seconds = 1.0
        self.lost = 0
        self.held = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, name="cable", daemon=True).start()

    # --- faults ---

    def cut(self, rng: Random, share: float = 1.0) -> int:
        """Cuts this share of the connections; how many that were."""
        with self.lock:
            chosen = [link for link in self.links if rng.random() < share]
        for link in chosen:
            link.cut()
        return len(chosen)

    def freeze(self) -> None:
        """From now on nothing passes in either direction, and neither side is told."""
        self.flowing.clear()

    def thaw(self) -> None:
        self.flowing.set()

    def close(self) -> None:
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
        self.listener.close()
        self.thaw()
        self.cut(Random(0))

    # --- passing bytes on ---

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self.flowing.wait(LONGEST_FREEZE)
        far = socket.socket(socket.AF_UNIX if isinstance(self.to, str) else socket.AF_INET)
        far.settimeout(CONNECT_SECONDS)
        try:
            far.connect(self.to)
        except OSError:
            reset(near)
            far.close()
            return
        far.settimeout(None)
        link = Link(near, far)
        with self.lock:
            self.links.append(link)
        answers = threading.Thread(target=self._pass, args=(link, far, near), daemon=True)
        answers.start()
        self._pass(link, near, far)
        answers.join(LONGEST_FREEZE)
        with self.lock:
            self.links.remove(link)
        near.close()
        far.close()

    def _pass(self, link: Link, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                self.flowing.wait(LONGEST_FREEZE)
                if self.delay:
                    time.sleep(self.delay)
                if source is link.near and FINAL.search(data) and self._cut_at_commit(link, data):
                    break
                sink.sendall(data)
        self.flowing.wait(LONGEST_FREEZE)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _cut_at_commit(self, link: Link, data: bytes) -> bool:
        """Whether this COMMIT was chosen: the server gets it, at once or late, and the program gets a reset."""
        with self.lock:
            late = self.hold > 0
            chosen = late or (self.lose > 0 and self.passing == 0)
            self.passing = max(0, self.passing - 1)
            self.hold, self.lose = self.hold - late, self.lose - (chosen and not late)
            self.held, self.lost = self.held + late, self.lost + (chosen and not late)
        if chosen:
            reset(link.near) if late else None
            time.sleep(self.hold_seconds if late else 0)
            link.far.sendall(data)
            reset(link.near)
        return chosen


@contextmanager
def cabled(url: str) -> Iterator[tuple[Cable, str]]:
    """A cable to the server of this address, and the address of the same database through it."""
    parts = {name: str(value) for name, value in conninfo_to_dict(url).items() if value}
    host, port = parts.get("host", "127.0.0.1"), int(parts.get("port", "5432"))
    cable = Cable(f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port))
    through = {**parts, "host": "127.0.0.1", "port": str(cable.port)}
    try:
        yield cable, f"postgresql:///{quote(through.pop('dbname'))}?{urlencode(through, quote_via=quote)}"
    finally:
        cable.close()


def reset(end: socket.socket) -> None:
    """Sends a reset. The shutdown wakes the thread that reads from this end."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        if end.family == socket.AF_UNIX:
            end.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        end.shutdown(socket.SHUT_RD)
        end.close()

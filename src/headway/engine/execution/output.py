"""The text that work prints: read from a pipe, cut into lines, and cleaned for the database."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

LINE_LIMIT = 8 * 1024


_READ = 65536


_MOST_READS = 16


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean(text: str) -> str:
    """Returns text that both databases can store: invalid characters become U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def shorten(text: str, limit: int = LINE_LIMIT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


class OutputLines:
    """Splits bytes into lines of text, none longer than the limit."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        lines = [piece for line in whole for piece in _pieces(line)]
        if len(self._rest) > LINE_LIMIT:
            *full, self._rest = _pieces_of_bytes(_seen(self._rest))
            lines += [_decode(piece) for piece in full]
        return lines

    def end(self) -> list[str]:
        rest, self._rest = self._rest, b""
        return _pieces(rest) if rest else []


def _seen(line: bytes) -> bytes:
    # A progress bar overwrites one line many times. Only the text that a terminal would show at the end is kept.
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _pieces(line: bytes) -> list[str]:
    return [_decode(piece) for piece in _pieces_of_bytes(_seen(line))]


def _pieces_of_bytes(line: bytes) -> list[bytes]:
    pieces = []
    while len(line) > LINE_LIMIT:
        end = LINE_LIMIT
        while end > LINE_LIMIT - 4 and line[end] & 0xC0 == 0x80:  # never split a UTF-8 character
            end -= 1
        pieces.append(line[:end])
        line = line[end:]
    return [*pieces, line]


def _decode(line: bytes) -> str:
    return clean(line.decode("utf-8", "replace"))


class Pipe:
    """Reads the output of a process without waiting, and passes every line to `take`."""

    __slots__ = ("_lines", "_take", "ended", "fd")

    def __init__(self, fd: int, take: Callable[[str], None]) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.ended = False
        self._take = take
        self._lines = OutputLines()

    def read(self) -> bool:
        """Reads once; returns False if there was nothing to read."""
        try:
            data = os.read(self.fd, _READ)
        except BlockingIOError:
            return False
        self.ended = not data
        for line in self._lines.feed(data):
            self._take(line)
        return bool(data)

    def drain(self) -> None:
        """Reads what is there, up to the capacity of a pipe.

        A process that keeps writing must not block the reader.
        """
        for _ in range(_MOST_READS):
            if not self.read():
                return

    def end_line(self) -> None:
        """Passes on the last line, which has no line end."""
        for line in self._lines.end():
            self._take(line)

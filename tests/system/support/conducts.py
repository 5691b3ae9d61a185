"""What receivers of webhooks do to whoever sends to them, as values: each is the fate of one request, and says what the
sender may have learnt from it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tests.support.receivers import Behaviour, Receiver, _read, drip, flood, hang, reset

OK = b"HTTP/1.1 200 OK\r\n"
PAST, FUTURE = "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2099 07:28:00 GMT"
RETRY_AFTERS = (
    *("0", "1", "7", "120", "3600", "999999", "99999999999999999999", "-5", "1.5", "1e3", "0x10", "", " 7 ", "soon"),
    *(
        PAST,
        FUTURE,
        "Wed, 99 Foo 2015 77:88:99 GMT",
        "Wed, 21 Oct 2015 07:28:00 +99999999999999",
        "\u0663",
        ",",
        "7, 8",
    ),
)
FINE = (200, 201, 202, 203, 204, 206, 226, 299)
REDIRECTS = (300, 301, 302, 303, 304, 305, 307, 308, 399)
REFUSALS = (400, 401, 402, 403, 404, 405, 406, 408, 409, 411, 413, 414, 415, 418, 421, 422, 423, 425, 428, 431, 451)
FAULTS = (500, 501, 502, 503, 504, 505, 507, 508, 511, 520, 599, 600, 999)


@dataclass(frozen=True)
class Conduct:
    """`status` is what its answer says; None: there is no whole answer, and nobody may claim one."""

    name: str
    act: Behaviour
    status: int | None = None


def raw(text: bytes, then: Behaviour | None = None) -> Behaviour:
    """These bytes, and the end of the connection or what follows."""

    def act(connection: socket.socket, receiver: Receiver) -> None:
        connection.sendall(text)
        if then is not None:
            then(connection, receiver)

    return act


def says(status: int, body: bytes = b"words", **headers: str) -> Conduct:
    lines = [f"HTTP/1.1 {status} Words", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join(lines).encode()
    return Conduct(
        f"{status} {headers or ''}", raw(head + b"\r\n\r\n" + (b"" if status in (204, 304) else body)), status
    )


def half_close(connection: socket.socket, receiver: Receiver) -> None:
    """Says that it will say nothing more, and goes on listening."""
    connection.shutdown(socket.SHUT_WR)
    with suppress(OSError):
        connection.settimeout(5.0)
        connection.recv(1)


WELL: Sequence[Conduct] = tuple(says(status) for status in FINE)
BAD: Sequence[Conduct] = (
    *(says(status, Location="http://trap.example/") for status in REDIRECTS),
    *(says(status) for status in (*REFUSALS, *FAULTS)),
    *(says(status, Retry_After=text) for status in (429, 503) for text in RETRY_AFTERS),
)
# No answer, or none that is HTTP.
NONE = {
    "closes": raw(b""),
    "resets": reset,
    "half closes": half_close,
    "resets in the status line": raw(b"HTTP/1.1 2", reset),
    "resets in the head": raw(OK + b"Content-Le", reset),
    "closes in the head": raw(OK + b"Content-Length: 2\r\n"),
    "half closes in the head": raw(OK + b"X: y\r\n", half_close),
    "blank lines": raw(b"\r\n\r\n"),
    "other words": raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
    "no status": raw(b"HTTP/1.1\r\n\r\n"),
    "a word for a status": raw(b"HTTP/1.1 abc OK\r\n\r\n"),
    "a short status": raw(b"HTTP/1.1 20 OK\r\n\r\n"),
    "another protocol": raw(b"HTTP/3 200 OK\r\n\r\n"),
    "a line without a colon": raw(OK + b"no colon here\r\n\r\n"),
    "NUL in a header": raw(OK + b"X: a\x00b\r\n\r\n"),
    "a negative length": raw(OK + b"Content-Length: -1\r\n\r\nx"),
    "a length in words": raw(OK + b"Content-Length: many\r\n\r\nx"),
    "two lengths": raw(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx"),
    "a strange encoding": raw(OK + b"Transfer-Encoding: rot13\r\n\r\nxx"),
    "a head of 200 KB": raw(OK + b"X: " + b"y" * 200_000 + b"\r\n\r\n"),
    "a thousand headers": raw(OK + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 200) for n in range(1_000)) + b"\r\n"),
    "binary": raw(bytes(range(256)) * 8),
}
# The status has decided, whatever becomes of the rest.
CUT = {
    "a length that is too large": b"Content-Length: 100000\r\n\r\nxx",
    "a length that is too small": b"Content-Length: 1\r\n\r\nxxxxxx",
    "chunks cut short": b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
    "chunks that are none": b"Transfer-Encoding: chunked\r\n\r\nzzz\r\nab\r\n",
    "nonsense called gzip": b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    "no UTF-8": b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 4\r\n\r\n\xff\xfe\x00\x80",
    "no length": b"\r\nuntil the end",
}


def odd(status: int) -> Sequence[Conduct]:
    """Answers with this status that break off, or come oddly."""
    head = b"HTTP/1.1 %d Words\r\n" % status
    return (
        *(Conduct(f"{status} {name}", raw(head + rest), status) for name, rest in CUT.items()),
        Conduct(f"{status} reset in its body", raw(head + b"Content-Length: 100000\r\n\r\nxx", reset), status),
        Conduct(f"{status} half closed in its body", raw(head + b"Content-Length: 9\r\n\r\nxx", half_close), status),
        Conduct(f"{status} of HTTP/1.0", raw(head.replace(b"1.1", b"1.0") + b"\r\nold"), status),
        Conduct(
            f"{status} after others",
            raw(b"HTTP/1.1 102 Wait\r\n\r\n" * 5 + head + b"Content-Length: 0\r\n\r\n"),
            status,
        ),
        Conduct(f"{status} twice", raw((head + b"Content-Length: 0\r\n\r\n") * 2), status),
    )


FAST: Sequence[Conduct] = (*BAD, *(Conduct(name, act) for name, act in NONE.items()), *odd(200), *odd(500))
# For as long as the sender has patience.
SLOW: Sequence[Conduct] = (
    Conduct("hangs", hang),
    Conduct("hangs in the status line", raw(b"HTTP/1.1 2", hang)),
    Conduct("hangs in the head", raw(OK + b"X: y\r\n", hang)),
    Conduct("a byte now and then in the head", drip(OK + b"X: ", b"y", 0.02)),
    Conduct("asks for patience without end", drip(b"", b"HTTP/1.1 102 Wait\r\n\r\n", 0.02)),
    Conduct("hangs in the body", raw(OK + b"Content-Length: 9\r\n\r\nx", hang), 200),
    Conduct("a byte now and then in the body", drip(OK + b"Content-Length: 99999\r\n\r\n", b"y", 0.02), 200),
    Conduct("a body without end", flood(1 << 30), 200),
)
GONE = says(410)


class Scripted(Receiver):
    """Answers each request as `choose` says, and remembers what that was."""

    def __init__(self, choose: Callable[[str, str], Conduct]) -> None:
        self.choose = choose
        self.fates: dict[tuple[str, str], Conduct] = {}
        super().__init__()

    def _serve_one(self, connection: socket.socket) -> None:
        got = _read(connection)
        if got is None:
            return
        message, at = got.headers["webhook-id"], got.headers["webhook-timestamp"]
        conduct = self.choose(got.target, f"{got.headers['x-job-id']} {at}")
        with self.lock:
            self.received.append(got)
            self.fates[message, at] = conduct
        conduct.act(connection, self)


class Early(Receiver):
    """Does what it does before it has read a request, or after some bytes of it."""

    def __init__(self, act: Behaviour, *, reads: int = 0) -> None:
        self.act = act
        self.reads = reads
        super().__init__()

    def _serve_one(self, connection: socket.socket) -> None:
        if self.reads:
            connection.recv(self.reads)
        self.act(connection, self)


EARLY: Sequence[tuple[str, Behaviour, int]] = (
    ("resets at once", reset, 0),
    ("closes at once", raw(b""), 0),
    ("half closes at once", half_close, 0),
    ("resets after ten bytes", reset, 10),
    ("resets after the head", reset, 200),
    ("says no before it has read", raw(b"HTTP/1.1 413 Words\r\nContent-Length: 0\r\n\r\n", half_close), 0),
    ("no HTTP before it has read", raw(b"220 mail ready\r\n"), 0),
)

"""The built-in task `http`: one request, its answer as the result."""

from __future__ import annotations

import codecs
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import SplitResult, urlsplit

from headway.engine.context import Context, clean
from headway.engine.signature import Rule
from headway.errors import BadInput, Retry
from headway.model.values import JSON_LIMIT, duration_text, from_json, seconds, to_json
from headway.tasks.built_in import BuiltIn, bad, check

if TYPE_CHECKING:
    import httpx

READ_LIMIT = 1024 * 1024
MOST_REDIRECTS = 10

_TEXT_LIMIT = JSON_LIMIT // 2
_LINE_LIMIT = 300
_KEPT = ("content-type", "etag", "last-modified", "location", "retry-after", "x-request-id")
_METHOD = re.compile(r"[A-Za-z]{1,20}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNSENDABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f]")
_CLASS = re.compile(r"[1-5][xX]{2}|[1-5][0-9]{2}")


# --- what may be asked for ----------------------------------------------------------------------------------------


def _method_problem(method: str) -> str | None:
    return None if _METHOD.fullmatch(method) else "must be a method such as GET or POST"


def _url_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme.lower() in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or _UNSENDABLE.search(url) or " " in url:
        return "must be an address such as https://example.org/path"
    if "@" in urlsplit(url).netloc:
        return 'holds a user or a password: give a header, {"Authorization": {"$secret": "NAME"}}'
    return None


def _headers_problem(headers: Mapping[str, object] | None) -> str | None:
    for name, value in (headers or {}).items():
        if not _HEADER.fullmatch(name):
            return f"has the name {name!r:.60}, which no header can have"
        if isinstance(value, str) and _UNSENDABLE.search(value):
            return f"has a line break or another control character in {name}"
    return None


def _expect_problem(expect: object) -> str | None:
    wanted = expect if isinstance(expect, list) else [expect]
    if wanted and all(_CLASS.fullmatch(str(one)) for one in wanted):
        return None
    return 'must be a status like 200, a class like "2xx", or a list of them'


def _timeout_problem(timeout: float | str) -> str | None:
    try:
        return None if seconds(timeout, field="timeout") > 0 else "must be more than 0"
    except BadInput as error:
        return str(error.facts["problem"])


def run_http(
    ctx: Context,
    url: Annotated[str, Rule(_url_problem)],
    method: Annotated[str, Rule(_method_problem)] = "GET",
    headers: Annotated[dict[str, str] | None, Rule(_headers_problem)] = None,
    body: Any = None,
    expect: Annotated[int | str | list[int | str], Rule(_expect_problem)] = "2xx",
    timeout: Annotated[float | str, Rule(_timeout_problem)] = 60.0,
    follow: bool = False,
) -> dict[str, Any]:
    """Send one request. A text is sent as it is, any other body as JSON."""
    check("url", _url_problem(url))
    check("method", _method_problem(method))
    check("headers", _headers_problem(headers))
    check("expect", _expect_problem(expect))
    check("timeout", _timeout_problem(timeout))
    what = f"{method.upper()} {_shown(urlsplit(url))}"
    answer = _Answer(what)
    began = time.monotonic()
    with _in_words(what, deadline := _Deadline(seconds(timeout, field="timeout"))):
        _send(_Request(method.upper(), url, _traced(ctx, headers or {}), body, follow), answer, deadline)
    ctx.log.info("%s, %d bytes, in %s", answer, len(answer.data), duration_text(round(time.monotonic() - began, 3)))
    if not any(_fits(answer.status, one) for one in (expect if isinstance(expect, list) else [expect])):
        raise Retry(answer.refusal(expect, follow))
    return answer.result()


http = BuiltIn("http", run_http)


def _traced(ctx: Context, headers: Mapping[str, str]) -> Mapping[str, str]:
    """With the trace that this run belongs to, unless the headers name one."""
    if ctx.traceparent is None or any(name.lower() == "traceparent" for name in headers):
        return headers
    return {**headers, "traceparent": ctx.traceparent}


def _shown(parts: SplitResult) -> str:
    """Where a request goes, without the query: that is for the params to show."""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _fits(status: int, wanted: int | str) -> bool:
    text = str(wanted).lower()
    return str(status) == text or (text.endswith("xx") and str(status)[0] == text[0])


# --- sending ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    url: str
    given: Mapping[str, str]
    body: Any
    follow: bool

    def content(self) -> bytes | None:
        if self.body is None or isinstance(self.body, str):
            return None if self.body is None else self.body.encode()
        return json.dumps(self.body, ensure_ascii=False).encode()

    def headers(self) -> list[tuple[bytes, bytes]]:
        usual = {"user-agent": "headway", "accept": "*/*", "accept-encoding": "identity"}
        if self.body is not None:
            usual["content-type"] = "text/plain; charset=utf-8" if isinstance(self.body, str) else "application/json"
        given = {name.lower(): value for name, value in self.given.items()}
        return [(name.encode(), value.encode()) for name, value in {**usual, **given}.items()]


def _send(wish: _Request, answer: _Answer, deadline: _Deadline) -> None:
    import httpx  # a tenth of a second, which nobody else needs to pay

    client = httpx.Client(
        verify=httpx.create_ssl_context(),
        trust_env=False,  # neither proxies nor passwords from the worker's environment
        timeout=deadline.seconds,
        follow_redirects=wish.follow,
        max_redirects=MOST_REDIRECTS,
    )
    with client, deadline:
        seen = {"trace": deadline.trace}
        request = client.build_request(
            wish.method, wish.url, headers=wish.headers(), content=wish.content(), extensions=seen
        )
        with closing(client.send(request, stream=True)) as response:
            answer.read(response)


class _Deadline:
    """Ends a request that takes too long as a whole: httpx itself only limits each single wait."""

    def __init__(self, allowed: float) -> None:
        self.seconds = allowed
        self.passed = False
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(allowed, self._end)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def trace(self, event: str, facts: Mapping[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = facts["return_value"].get_extra_info("socket")

    def _end(self) -> None:
        self.passed = True
        if self._socket is not None:
            with suppress(OSError):  # of the plain socket, also under TLS: the other thread is using the rest
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


@contextmanager
def _in_words(what: str, deadline: _Deadline) -> Iterator[None]:
    import httpx

    late = f"{what}: no complete answer within {duration_text(deadline.seconds)}"
    try:
        yield
        if deadline.passed:  # an answer without a length just seems to be complete
            raise Retry(late)
    except httpx.TimeoutException:
        raise Retry(late) from None
    except httpx.TooManyRedirects:
        raise Retry(f"{what}: redirected more than {MOST_REDIRECTS} times") from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
        bad("url", f"or headers cannot be sent: {error}")
    except httpx.HTTPError as error:
        if deadline.passed:
            raise Retry(late) from None
        action = "cannot connect" if isinstance(error, httpx.ConnectError) else "the request failed"
        raise Retry(f"{what}: {action}: {_words(error)}") from None


def _words(error: Exception) -> str:
    return re.sub(r"^\[Errno -?[0-9]+\] ", "", str(error)) or type(error).__name__


# --- the answer ---------------------------------------------------------------------------------------------------


def _known_charset(name: str) -> str:
    try:
        "".encode(name)  # refuses what is unknown, and what is no charset, like zlib
    except LookupError:
        return "utf-8"
    return name


class _Answer:
    """What came back, as far as it is kept."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.status = 0
        self.headers: dict[str, str] = {}
        self.data = b""
        self.cut = False
        self.charset = "utf-8"

    def __str__(self) -> str:
        names = {status.value: f" {status.phrase}" for status in HTTPStatus}
        return f"{self.what} answered {self.status}{names.get(self.status, '')}"

    def read(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers = {name: clean(response.headers[name])[:1000] for name in _KEPT if name in response.headers}
        self.charset = _known_charset(response.charset_encoding or "utf-8")
        pieces, size = [], 0
        for piece in response.iter_bytes():
            pieces.append(piece)
            size += len(piece)
            if size > READ_LIMIT:
                self.cut = True
                break
        self.data = b"".join(pieces)[:READ_LIMIT]

    def refusal(self, expect: object, follow: bool) -> str:
        wanted = " or ".join(map(str, expect)) if isinstance(expect, list) else str(expect)
        where = ""
        if 300 <= self.status < 400 and "location" in self.headers and not follow:
            where = f" (to {self.headers['location']}; follow: true goes there)"
        lines = (self._text() or "").strip().splitlines()
        said = f": {lines[0][:_LINE_LIMIT]}" if lines else ""
        return f"{self}{where}, expected {wanted}{said}"

    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = {"status": self.status, "headers": self.headers, "body": self._body()}
        if self.cut:
            result["truncated"] = True
        return result

    def _body(self) -> Any:
        text = self._text()
        if text is None or not text:
            return text
        if not self.cut and "json" in self.headers.get("content-type", ""):
            with suppress(BadInput):  # not the JSON that we can keep: then as text
                value = from_json(text, field="body", limit=_TEXT_LIMIT)
                to_json(value, field="body", limit=_TEXT_LIMIT)
                return value
        return self._fitting(text)

    def _text(self) -> str | None:
        """The body, if it is text. One that was cut may end in half a character."""
        try:
            text = codecs.getincrementaldecoder(self.charset)().decode(self.data, not self.cut)
        except UnicodeDecodeError:
            return None
        return clean(text)

    def _fitting(self, text: str) -> str:
        # As long as it is stored: what has to be escaped takes up to six times its room.
        while len(json.dumps(text, ensure_ascii=False).encode()) > _TEXT_LIMIT:
            self.cut = True
            text = text[: len(text) // 2]
        return text

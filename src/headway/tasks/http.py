"""The built-in task `http`: sends one request and returns the response."""

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

from headway.engine.execution.context import Context
from headway.engine.execution.output import clean
from headway.engine.tasks.signature import Rule
from headway.errors import BadInput, Retry
from headway.model.values.json import JSON_LIMIT, from_json, to_json
from headway.model.values.times import duration_text, seconds
from headway.tasks.common import BuiltIn, bad, check

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


# --- params -------------------------------------------------------------------------------------------------------


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
            return f"has the name {name!r:.60}, which is not a valid name of a header"
        if isinstance(value, str) and _UNSENDABLE.search(value):
            return f"has a line break or another control character in {name}"
    return None


def _expect_problem(expect: object) -> str | None:
    wanted = expect if isinstance(expect, list) else [expect]
    if wanted and all(_CLASS.fullmatch(str(status)) for status in wanted):
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
    """Sends one request. A string body is sent unchanged, any other body as JSON."""
    check("url", _url_problem(url))
    check("method", _method_problem(method))
    check("headers", _headers_problem(headers))
    check("expect", _expect_problem(expect))
    check("timeout", _timeout_problem(timeout))
    what = f"{method.upper()} {_shown(urlsplit(url))}"
    answer = _Received(what)
    began = time.monotonic()
    with _in_words(what, deadline := _Deadline(seconds(timeout, field="timeout"))):
        _send(_Request(method.upper(), url, _traced(ctx, headers or {}), body, follow), answer, deadline)
    ctx.log.info("%s, %d bytes, in %s", answer, len(answer.data), duration_text(round(time.monotonic() - began, 3)))
    if not any(_fits(answer.status, wanted) for wanted in (expect if isinstance(expect, list) else [expect])):
        raise Retry(answer.refusal(expect, follow))
    return answer.result()


http = BuiltIn("http", run_http)


def _traced(ctx: Context, headers: Mapping[str, str]) -> Mapping[str, str]:
    """Adds the trace context of this run, unless the headers have one."""
    if ctx.traceparent is None or any(name.lower() == "traceparent" for name in headers):
        return headers
    return {**headers, "traceparent": ctx.traceparent}


def _shown(parts: SplitResult) -> str:
    """Returns the address of a request without its query, which the params show."""
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


def _send(given: _Request, answer: _Received, deadline: _Deadline) -> None:
    import httpx  # takes a tenth of a second, so only this task pays for it

    client = httpx.Client(
        verify=httpx.create_ssl_context(),
        trust_env=False,  # use no proxies and no passwords of the worker's environment
        timeout=deadline.seconds,
    )
    with client, deadline:
        seen = {"trace": deadline.trace}
        request = client.build_request(
            given.method, given.url, headers=given.headers(), content=given.content(), extensions=seen
        )
        for _ in range(MOST_REDIRECTS + 1):
            with closing(client.send(request, stream=True)) as response:
                following = response.next_request
                if not given.follow or following is None or _keeps_body(following, request):
                    return answer.read(response)
                request = _on_its_way(following, request, given)
        raise httpx.TooManyRedirects("redirected too often", request=request)


def _on_its_way(following: httpx.Request, before: httpx.Request, given: _Request) -> httpx.Request:
    """Returns the request that follows a redirect; another host gets none of the headers that the params gave.

    Any of them may be a secret, which is filled in before this process gets the params.
    """
    if _goes_elsewhere(following, before):
        for name in given.given:
            if name.lower() != "host":  # httpx has set it for the new address
                following.headers.pop(name, None)
    return following


def _goes_elsewhere(following: httpx.Request, before: httpx.Request) -> bool:
    """Returns True for another host, port or scheme."""
    return (following.url.scheme, following.url.netloc) != (before.url.scheme, before.url.netloc)


def _keeps_body(following: httpx.Request, before: httpx.Request) -> bool:
    """Returns True if a redirect would send the body elsewhere. The body may hold a secret as well."""
    return _goes_elsewhere(following, before) and following.headers.get("content-length", "0") != "0"


class _Deadline:
    """Ends a request that takes too long in total.

    httpx limits only each single wait.
    """

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
            with suppress(
                OSError
            ):  # shuts down the plain socket even under TLS, because the other thread uses the rest
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


@contextmanager
def _in_words(what: str, deadline: _Deadline) -> Iterator[None]:
    import httpx

    late = f"{what}: no complete answer within {duration_text(deadline.seconds)}"
    try:
        yield
        if deadline.passed:  # a response without a length seems complete when its socket is shut down
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


# --- the response -------------------------------------------------------------------------------------------------


def _known_charset(name: str) -> str:
    try:
        "".encode(name)  # raises for unknown names, and for codecs that are not charsets, such as zlib
    except LookupError:
        return "utf-8"
    return name


class _Received:
    """The part of the response that is kept."""

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
        if 300 <= self.status < 400 and "location" in self.headers and (not follow or self.status in (307, 308)):
            why = "a body is not sent to another host" if follow else "set follow to true to follow it"
            where = f" (to {self.headers['location']}; {why})"
        lines = (self._text() or "").strip().splitlines()
        quoted = f": {lines[0][:_LINE_LIMIT]}" if lines else ""
        return f"{self}{where}, expected {wanted}{quoted}"

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
            with suppress(BadInput):  # JSON that cannot be stored is kept as text
                value = from_json(text, field="body", limit=_TEXT_LIMIT)
                to_json(value, field="body", limit=_TEXT_LIMIT)
                return value
        return self._fitting(text)

    def _text(self) -> str | None:
        """Returns the body as text; None if it is not text.

        A cut body may end inside a character.
        """
        try:
            text = codecs.getincrementaldecoder(self.charset)().decode(self.data, not self.cut)
        except UnicodeDecodeError:
            return None
        return clean(text)

    def _fitting(self, text: str) -> str:
        # Measures the stored form, because escaping makes a character up to six times longer.
        while len(json.dumps(text, ensure_ascii=False).encode()) > _TEXT_LIMIT:
            self.cut = True
            text = text[: len(text) // 2]
        return text

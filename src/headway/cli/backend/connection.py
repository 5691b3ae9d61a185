"""The HTTP connection to one server: requests, pages and the live log of a job.

A failure is raised as one of Headway's own errors.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from headway import __version__
from headway.cli.backend.http_errors import error_of, foreign
from headway.cli.backend.server_option import ServerAddress
from headway.cli.output import Json
from headway.clock import SECOND, SystemClock
from headway.errors import CommitUnknown, Unreachable
from headway.store.paging import MAX_LIMIT

CONNECT, READ = 10.0, 60.0
# A live stream sends a message or a keep-alive at least every 15 s.
SILENCE = 45.0
# A broken stream is reconnected every AGAIN seconds, and given up after PATIENCE seconds.
PATIENCE, AGAIN = 30.0, 0.5
TRIES = 3
MOST_EVENTS = 1_000
# A smaller difference of clocks is ignored: a Date header has whole seconds, and a busy server sends it late.
SKEW = 5 * SECOND


class Message(NamedTuple):
    """One server-sent event. Without a kind it is a keep-alive."""

    kind: str = ""
    data: Any = None
    number: int | None = None


class Link:
    """The connection to one server. `say` prints messages that are no part of an answer."""

    def __init__(self, server: ServerAddress, say: Callable[[str], None]) -> None:
        self.url = server.url
        self.say = say
        headers = {"User-Agent": f"headway/{__version__}", "Accept": "application/json"}
        if server.token is not None:
            headers["Authorization"] = f"Bearer {server.token}"
        if server.tenant is not None:
            headers["Headway-Tenant"] = quote(server.tenant)
        secure = server.url.startswith("https:")
        self.http = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(READ, connect=CONNECT),
            verify=httpx.create_ssl_context() if secure else False,
            trust_env=not _is_here(server.host),  # a proxy cannot reach this machine's loopback address
        )
        self.ahead = 0

    def close(self) -> None:
        self.http.close()

    def now(self) -> int:
        """Returns the time by the server's clock, with which the server's times are compared."""
        return SystemClock().now() + self.ahead

    # --- one request ---

    def get(self, path: str, **query: Any) -> Json:
        return self._send("GET", path, query=query)

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, if_version: int | None = None) -> Json:
        return self._send("POST", path, body=body or {}, headers=_if_match(if_version))

    def put(self, path: str, body: Mapping[str, Any]) -> Json:
        return self._send("PUT", path, body=body)

    def patch(self, path: str, body: Mapping[str, Any], *, if_version: int | None = None) -> Json:
        return self._send("PATCH", path, body=body, headers=_if_match(if_version))

    def delete(self, path: str, *, if_version: int | None = None) -> Json:
        return self._send("DELETE", path, headers=_if_match(if_version))

    def create(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[Json, int]:
        """Sends a request that creates something; returns the answer and its HTTP status.

        The request carries an idempotency key, so it is sent again when the answer is lost.
        """
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        for left in reversed(range(TRIES)):
            try:
                answer = self._ask("POST", path, body=body or {}, headers=headers)
                return self._read(answer), answer.status_code
            except CommitUnknown:
                if not left:
                    raise
                time.sleep(AGAIN)
        raise AssertionError

    def call(self, path: str, body: Mapping[str, Any]) -> Json:
        """Sends a direct call, whose answer comes when the work has ended."""
        return self._send("POST", path, body=body, patient=True)

    def download(self, path: str) -> bytes:
        answer = self._ask("GET", path)
        if not answer.is_success:
            self._read(answer)
        return answer.content

    def pages(self, path: str, most: int, **query: Any) -> list[Json]:
        """Reads a list page by page, up to `most` items."""
        found: list[Json] = []
        go_on = "after" if path.endswith("/events") else "cursor"
        while True:
            page = self.get(path, **{**query, "limit": min(MAX_LIMIT, most - len(found))})
            found += page["items"]
            if page["next"] is None or len(found) >= most:
                return found
            query[go_on] = page["next"]

    def events(self, path: str) -> list[Json]:
        """Returns the events of a thing, the oldest first."""
        return self.pages(f"{path}/events", MOST_EVENTS)

    def _send(self, method: str, path: str, **more: Any) -> Json:
        return self._read(self._ask(method, path, **more))

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        patient: bool = False,
    ) -> httpx.Response:
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        timeout = httpx.Timeout(READ, connect=CONNECT, read=None) if patient else self.http.timeout
        sent = SystemClock().now()
        with self._reaching(method):
            answer = self.http.request(
                method,
                f"{self.url}{path}",
                params=asked,
                content=content,
                headers={**kind, **(headers or {})},
                timeout=timeout,
            )
        self._keep_time(answer, sent, SystemClock().now())
        return answer

    def _read(self, answer: httpx.Response) -> Json:
        kind = answer.headers.get("content-type", "").partition(";")[0]
        if answer.is_redirect:
            there = answer.headers.get("location", "elsewhere")
            raise foreign(self.url, f"it redirects to {there}: give that address with --server")
        if kind not in ("application/json", "application/problem+json"):
            got = f"{answer.status_code}, {kind or 'nothing'}"
            raise foreign(self.url, f"it answers {got} instead of JSON")
        try:
            found = answer.json()
        except ValueError:
            raise foreign(self.url, "its JSON cannot be read") from None
        if not isinstance(found, dict):
            raise foreign(self.url, "its JSON is not an object")
        if not answer.is_success:
            raise error_of(self.url, answer.request.url.path, answer.status_code, found)
        return found

    @contextmanager
    def _reaching(self, method: str = "GET") -> Iterator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as error:
            text = (
                f"{self.url} cannot be reached ({_cause(error)}): check the address, and that `headway up` runs there"
            )
            raise Unreachable(text) from None
        except (httpx.InvalidURL, httpx.HTTPError) as error:
            if method == "GET":
                raise Unreachable(f"{self.url} did not answer ({_cause(error)}): try again") from None
            text = (
                f"the connection to {self.url} broke ({_cause(error)}): check whether it was done before trying again"
            )
            raise CommitUnknown(text) from None

    def _keep_time(self, answer: httpx.Response, sent: int, came: int) -> None:
        with suppress(KeyError, ValueError, TypeError):
            there = round(parsedate_to_datetime(answer.headers["date"]).timestamp()) * SECOND
            self.ahead = clock_ahead(there, sent, came)

    # --- a job as it goes ---

    def live(self, job_id: int, after: int = 0, deadline: float | None = None) -> Iterator[Message]:
        """Yields the log lines and the changes of a job until the job ends or the deadline passes.

        A broken connection is opened again and continues after the last line received.
        """
        heard = time.monotonic()
        while True:
            try:
                for message in self._stream(f"/api/jobs/{job_id}/live", after, deadline):
                    heard, after = time.monotonic(), message.number or after
                    if message.kind:
                        yield message
                    if message.kind == "end" or _over(deadline):
                        return
            except Unreachable:
                if _over(deadline):
                    return
                if time.monotonic() - heard > PATIENCE:
                    raise
            time.sleep(AGAIN)

    def _stream(self, path: str, after: int, deadline: float | None) -> Iterator[Message]:
        patience = SILENCE if deadline is None else max(0.1, min(SILENCE, deadline - time.monotonic()))
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": str(after)} if after else {})}
        timeout = httpx.Timeout(patience, connect=CONNECT)
        with (
            self._reaching(),
            self.http.stream("GET", f"{self.url}{path}", headers=headers, timeout=timeout) as answer,
        ):
            if answer.headers.get("content-type", "").partition(";")[0] != "text/event-stream":
                answer.read()
                self._read(answer)
                raise foreign(self.url, "it does not stream events")
            try:
                yield from messages(answer.iter_lines())
            except ValueError:
                raise foreign(self.url, "its events cannot be read") from None


def clock_ahead(there: int, sent: int, came: int) -> int:
    """Returns how far a server's clock is ahead of ours, 0 within `SKEW`.

    The server sent the time `there` at some moment between `sent` and `came` of our clock.
    """
    ahead = max(0, there - came) + min(0, there - sent)
    return ahead if abs(ahead) > SKEW else 0


def messages(lines: Iterator[str]) -> Iterator[Message]:
    """Parses server-sent events: fields up to an empty line; a line that begins with a colon is a keep-alive."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            yield Message()
        elif line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif fields:
            number = fields.get("id", "")
            data = json.loads(fields["data"]) if "data" in fields else None
            yield Message(fields.get("event", "message"), data, int(number) if number.isdigit() else None)
            fields = {}


def part(name: str) -> str:
    """Quotes a name as one segment of a path, its slashes included."""
    return quote(name, safe="")


def given(**fields: Any) -> Json:
    """Returns the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def _if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}


def _over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def _is_here(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _cause(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__

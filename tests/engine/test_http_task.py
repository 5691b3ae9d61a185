"""The built-in task `http`, in a real child against a real server on loopback."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headway import App
from headway.engine.execution.child_process import Child
from headway.engine.execution.context import WorkItem
from headway.errors import BadInput
from headway.model.jobs.outcome import Completed, Failed, FailureKind, Outcome, StoppedByRequest
from tests.engine.test_child import DEADLINE, Recorder
from tests.support.deadlines import join

Answer = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    """One request as the server sees it; the answer is a function of the test's."""

    server: Server

    def answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        self.body = self.rfile.read(length)
        self.server.seen.append((self.command, self.path, dict(self.headers.items()), self.body.decode()))
        self.server.answers[self.path.partition("?")[0]](self)

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def say(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.scheme = "http" if tls is None else "https"
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.seen: list[tuple[str, str, dict[str, str], str]] = []
        self.answers: dict[str, Answer] = {}
        self.over = threading.Event()

    def url(self, path: str, answer: Answer) -> str:
        self.answers[path] = answer
        return f"{self.scheme}://127.0.0.1:{self.server_port}{path}"

    def handle_error(self, *_: object) -> None:
        """A client that went away is what some tests are about."""


@contextmanager
def at_work(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        join(thread)
        server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with at_work(Server()) as server:
        yield server


@pytest.fixture(scope="module")
def warm() -> Iterator[list[Child]]:
    children = [Child.start()]
    yield children
    children[-1].close()


@pytest.fixture
def child(warm: list[Child]) -> Child:
    if not warm[-1].usable:
        warm.append(Child.start())
    return warm[-1]


@pytest.fixture
def sink() -> Recorder:
    return Recorder()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def request(url: str, **params: Any) -> WorkItem:
    return WorkItem(7, "http", 3, 2, {"url": url, **params}, module="headway.tasks.http")


def redirect(status: int, to: str) -> Answer:
    return lambda answered: answered.say(status, location=to)


def result_of(outcome: Outcome) -> Any:
    assert isinstance(outcome, Completed), outcome
    return json.loads(outcome.result)


def failure(outcome: Outcome) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


# --- what it does -------------------------------------------------------------------------------------------------


def test_the_answer_is_the_result(child: Child, sink: Recorder, server: Server):
    url = server.url("/story", lambda r: r.say(200, b'{"title": "Fog"}', content_type="application/json", x_other="no"))

    result = result_of(child.run(request(url), sink))

    assert result == {"status": 200, "headers": {"content-type": "application/json"}, "body": {"title": "Fog"}}
    assert server.seen[0][0] == "GET"
    assert sink.logged("INFO")[0].startswith(f"GET {url} answered 200 OK, 16 bytes, in ")


@pytest.mark.parametrize(
    ("body", "sent", "kind"),
    [
        ({"a": [1, "é"]}, '{"a": [1, "é"]}', "application/json"),
        ([], "[]", "application/json"),
        (False, "false", "application/json"),
        ("plain é", "plain é", "text/plain; charset=utf-8"),
        (None, "", None),
    ],
)
def test_a_body_is_json_unless_it_is_text(
    child: Child, sink: Recorder, server: Server, body: Any, sent: str, kind: str | None
):
    url = server.url("/in", lambda r: r.say(204))

    assert result_of(child.run(request(url, method="put", body=body), sink))["status"] == 204

    method, _, headers, seen = server.seen[0]
    assert (method, seen, headers.get("content-type")) == ("PUT", sent, kind)


def test_headers_are_sent_and_win_over_the_usual_ones(child: Child, sink: Recorder, server: Server):
    url = server.url("/in", lambda r: r.say(200))

    child.run(request(url, headers={"Authorization": "Bearer x", "Content-Type": "a/b", "X-Née": "é"}), sink)
    child.run(request(url, method="POST", body="x", headers={"Content-Type": "a/b", "X-Name": "é"}), sink)

    ((_, _, headers, _),) = server.seen  # the first has a name that no header can have
    assert (headers["content-type"], headers["user-agent"]) == ("a/b", "headway")
    assert headers["x-name"].encode("latin-1").decode() == "é"


def test_neither_proxies_nor_passwords_come_from_the_environment(sink: Recorder, server: Server, tmp_path: Any):
    url = server.url("/in", lambda r: r.say(200))
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password hunter2\n")
    environment = {"HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9", "HOME": str(tmp_path)}
    child = Child.start(env={**os.environ, **environment})
    try:
        assert result_of(child.run(request(url), sink))["status"] == 200
    finally:
        child.close()
    assert "authorization" not in {name.lower() for name in server.seen[0][2]}


@pytest.mark.parametrize(
    ("status", "expect", "good"),
    [
        (200, "2xx", True),
        (404, "2xx", False),
        (404, 404, True),
        (404, "404", True),
        (409, [201, "4XX"], True),
        (200, [201, "4xx"], False),
    ],
)
def test_which_status_is_good(child: Child, sink: Recorder, server: Server, status: int, expect: Any, good: bool):
    url = server.url("/in", lambda r: r.say(status))

    assert isinstance(child.run(request(url, expect=expect), sink), Completed) is good


def test_another_status_fails_with_the_first_line_of_the_body(child: Child, sink: Recorder, server: Server):
    url = server.url("/in", lambda r: r.say(503, b"\nthe model is loading\nsecond line"))

    failed = failure(child.run(request(f"{url}?key=private", expect=[200, 201]), sink))

    assert (failed.kind, failed.final, failed.exit_code) == (FailureKind.EXCEPTION, False, None)
    assert failed.error == f"GET {url} answered 503 Service Unavailable, expected 200 or 201: the model is loading"


def test_a_redirect_to_another_host_carries_none_of_the_given_headers(child: Child, sink: Recorder, server: Server):
    """Any header may be a secret; the address that a redirect names decides who would get it."""
    server.url("/there", lambda r: r.say(200, b"here"))
    other = f"http://localhost:{server.server_port}/there"
    url, near = (
        server.url("/away", lambda r: r.say(302, location=other)),
        server.url("/near", lambda r: r.say(302, location="/there")),
    )
    secret = {"X-Api-Key": "s3cret", "Authorization": "Bearer s3cret"}
    assert result_of(child.run(request(url, headers=secret, follow=True), sink))["body"] == "here"
    assert "s3cret" in str(server.seen[0])
    assert "s3cret" not in str(server.seen[1])
    assert result_of(child.run(request(near, headers=secret, follow=True), sink))["body"] == "here"
    assert "s3cret" in str(server.seen[3])


def test_another_port_or_scheme_gets_neither_the_given_headers_nor_the_body(sink: Recorder, tmp_path: Path):
    """Two real servers, the second once plain and once with TLS."""
    files = ("-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert"))
    named = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1")
    kind = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subprocess.run(["openssl", "req", *kind, *named, *files], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    child = Child.start(env={**os.environ, "SSL_CERT_FILE": str(tmp_path / "cert")})
    given = {"X-Api-Key": "s3cret", "Authorization": "Bearer s3cret", "Cookie": "s3cret", "Host": "127.0.0.1"}
    with closing(child), at_work(Server()) as first, at_work(Server()) as plain, at_work(Server(tls)) as secured:
        first.url("/back", lambda r: r.say(200, b"back"))
        for other in (plain, secured):
            there = other.url("/there", lambda r: r.say(200, b"here"))
            back = other.url("/back", redirect(302, f"http://127.0.0.1:{first.server_port}/back"))
            for status in (301, 302, 303, 307, 308):
                away = first.url("/away", redirect(status, there))
                assert result_of(child.run(request(away, headers=given, follow=True), sink))["body"] == "here"
                wish = request(away, method="POST", headers=given, body={"key": "s3cret"}, follow=True)
                if status in (307, 308):  # these repeat the body
                    error = failure(child.run(wish, sink)).error
                    assert f"(to {there}; a body is not sent to another host)" in error
                else:
                    assert result_of(child.run(wish, sink))["body"] == "here"
            home = first.url("/home", redirect(302, back))
            assert result_of(child.run(request(home, headers=given, follow=True), sink))["body"] == "back"
            assert other.seen
            assert "s3cret" not in str(other.seen)
        assert "s3cret" not in str([seen for seen in first.seen if seen[1] == "/back"]), "what was dropped stays away"
        near = first.url("/near", lambda r: r.say(307, location="/back"))
        assert result_of(child.run(request(near, method="POST", headers=given, body="s3cret", follow=True), sink))
        assert first.seen[-1][3] == "s3cret"


def test_redirects_are_followed_only_when_asked_for(child: Child, sink: Recorder, server: Server):
    there = server.url("/there", lambda r: r.say(200, b"here"))
    url = server.url("/here", lambda r: r.say(302, location="/there"))
    circle = server.url("/circle", lambda r: r.say(302, location="/circle"))

    refused = failure(child.run(request(url), sink)).error
    assert refused == f"GET {url} answered 302 Found (to /there; set follow to true to follow it), expected 2xx"
    assert result_of(child.run(request(url, expect=302), sink))["headers"] == {"location": "/there"}
    assert [path for _, path, _, _ in server.seen] == ["/here", "/here"]
    assert result_of(child.run(request(url, follow=True), sink))["body"] == "here"
    assert (
        failure(child.run(request(circle, follow=True), sink)).error == f"GET {circle}: redirected more than 10 times"
    )
    assert there


# --- what is kept -------------------------------------------------------------------------------------------------


def test_no_more_than_a_mebibyte_is_read(child: Child, sink: Recorder, server: Server):
    def forever(r: Request) -> None:
        r.send_response(200)
        r.end_headers()
        while not server.over.is_set():
            r.wfile.write(b"x" * 65536)

    result = result_of(child.run(request(server.url("/big", forever)), sink))

    assert result["truncated"] is True
    assert set(result["body"]) == {"x"}
    assert "1048576 bytes" in sink.logged()[0]


@pytest.mark.parametrize(
    ("body", "kind", "kept"),
    [
        (b'{"n": NaN}', "application/json", '{"n": NaN}'),
        (b'{"a": 1, "a": 2}', "application/json", '{"a": 1, "a": 2}'),
        (b"[" * 100, "application/problem+json", "[" * 100),
        (b'{"a": 1}', "text/plain", '{"a": 1}'),
        (b"a\0b", "text/plain", "a\ufffdb"),
        ("é".encode("latin-1"), "text/plain; charset=latin-1", "é"),
        ("é".encode("latin-1"), "text/plain", None),
        (b"x", "text/plain; charset=no-such", "x"),
        (b"", "application/json", ""),
    ],
)
def test_what_cannot_be_kept_as_it_is(
    child: Child, sink: Recorder, server: Server, body: bytes, kind: str, kept: str | None
):
    url = server.url("/odd", lambda r: r.say(200, body, content_type=kind))

    assert result_of(child.run(request(url), sink))["body"] == kept


def test_a_long_answer_is_cut_until_it_fits(child: Child, sink: Recorder, server: Server):
    body = json.dumps(["é\n" * 10] * 20_000).encode()
    url = server.url("/long", lambda r: r.say(200, body, content_type="application/json"))

    outcome = child.run(request(url), sink)

    result = result_of(outcome)
    assert result["truncated"] is True
    assert body.decode().startswith(result["body"])
    assert 32 * 1024 < len(result["body"]) <= 128 * 1024


# --- what goes wrong ----------------------------------------------------------------------------------------------


def test_an_absent_server_is_said_in_words(child: Child, sink: Recorder):
    with socket.socket() as silent:  # it has the port and does not listen: nobody else can be there
        silent.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        failed = failure(child.run(request(gone), sink))

    assert (failed.kind, failed.final) == (FailureKind.EXCEPTION, False)
    assert failed.error == f"GET {gone}: cannot connect: Connection refused"


def test_a_server_that_hangs_up_is_said_in_words(child: Child, sink: Recorder, server: Server):
    url = server.url("/up", lambda r: r.connection.close())

    error = failure(child.run(request(url), sink)).error

    assert error.startswith(f"GET {url}: the request failed: Server disconnected")
    assert "\n" not in error


def _drip_headers(r: Request) -> None:
    r.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while not r.server.over.wait(0.02):
        r.wfile.write(b"X-A: b\r\n")


def _drip_body(r: Request) -> None:
    r.send_response(200)
    r.end_headers()
    while not r.server.over.wait(0.02):
        r.wfile.write(b"x")


def _say_nothing(r: Request) -> None:
    r.server.over.wait(DEADLINE)


@pytest.mark.parametrize("answer", [_say_nothing, _drip_headers, _drip_body])
def test_the_timeout_is_for_the_whole_request(child: Child, sink: Recorder, server: Server, answer: Answer):
    url = server.url("/slow", answer)

    failed = failure(child.run(request(url, timeout="200ms"), sink, timeout=DEADLINE))

    assert failed.kind is FailureKind.EXCEPTION
    assert failed.error == f"GET {url}: no complete answer within 200ms"


def test_a_job_that_is_asked_to_stop_stops(child: Child, sink: Recorder, server: Server, pool: ThreadPoolExecutor):
    begun = threading.Event()

    def answer(r: Request) -> None:
        begun.set()
        _say_nothing(r)

    running = pool.submit(child.run, request(server.url("/slow", answer)), sink)
    assert begun.wait(DEADLINE)

    child.stop(DEADLINE)

    assert running.result(DEADLINE) == StoppedByRequest()


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"url": "ftp://example.org/x"}, "params.url must be an address such as https://example.org/path"),
        ({"url": "http:///x"}, "params.url must be an address"),
        ({"url": "http://a:b:c/"}, "params.url must be an address"),
        ({"url": "http://a b/"}, "params.url must be an address"),
        ({"url": "http://me:hunter2@example.org/"}, "params.url holds a user or a password"),
        ({"method": "GET /x"}, "params.method must be a method such as GET or POST"),
        ({"headers": {"a b": "c"}}, "params.headers has the name 'a b', which is not a valid name of a header"),
        ({"headers": {"a": "b\r\nc: d"}}, "params.headers has a line break or another control character in a"),
        ({"expect": "good"}, "params.expect must be a status like 200"),
        ({"expect": []}, "params.expect must be a status like 200"),
        ({"expect": [200, 999]}, "params.expect must be a status like 200"),
        ({"timeout": 0}, "params.timeout must be more than 0"),
        ({"timeout": "soon"}, "params.timeout"),
    ],
)
def test_params_that_cannot_work_are_refused_twice(child: Child, sink: Recorder, params: dict[str, Any], problem: str):
    """At enqueue, and when it runs: a step's result or a secret may come between."""
    given = {"url": "http://127.0.0.1:9/", **params}
    with pytest.raises(BadInput, match=problem.replace("(", r"\(")) as refused:
        App().tasks["http"].enqueue(**given)
    assert refused.value.field == problem.split()[0]
    assert "hunter2" not in str(refused.value)

    failed = failure(child.run(request(**given), sink))
    assert failed.kind is FailureKind.BAD_PARAMS
    assert problem in failed.error


def test_what_is_filled_in_later_is_not_judged_before():
    signature = App().tasks["http"].spec.signature
    secret = {"$secret": "TOKEN"}

    signature.check({"url": secret, "method": secret, "headers": {"Authorization": secret}, "timeout": secret})


def test_importing_headway_does_not_import_the_client():
    code = "import headway, sys; headway.App(); assert not {'httpx', 'psycopg', 'ssl'} & set(sys.modules), 'too much'"
    subprocess.run([sys.executable, "-c", code], check=True)

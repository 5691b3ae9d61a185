"""One request to a receiver of webhooks: what good and bad receivers do, and that no forbidden address is reached."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from headway.engine.webhooks import http_client
from headway.engine.webhooks.http_client import Guard, Request, SentRequest, send
from tests.support.receivers import Receiver, answer, drip, flood, hang, receiver, reset

QUICK = 0.4
# Less than the receivers' own patience, and more than a slow machine needs.
SOON = 20.0
OPEN = Guard(allow_private=True, deadline=SOON)
SHORT = Guard(allow_private=True, deadline=QUICK)


def post(one: Receiver, guard: Guard = OPEN, *, url: str | None = None) -> SentRequest:
    return send(Request(url or one.url, {"X-Test": "1", "User-Agent": "headway"}, b'{"a":1}'), guard)


def test_an_answer() -> None:
    with receiver(answer(202, b"taken", X_Request_ID="r1", Set_Cookie="secret")) as one:
        sent = post(one)
    assert sent.outcome.delivered
    assert (sent.outcome.status_code, sent.address) == (202, "127.0.0.1")
    assert json.loads(sent.response or "") == {
        "headers": {"content-length": "5", "x-request-id": "r1"},
        "body": "taken",
    }
    (got,) = one.received
    assert (got.method, got.target, got.body) == ("POST", "/hook?a=1", b'{"a":1}')
    assert (got.headers["host"], got.headers["content-length"]) == (f"127.0.0.1:{one.port}", "7")


def test_a_large_body_arrives_whole() -> None:
    body = b"x" * 3_000_000
    with receiver() as one:
        assert send(Request(one.url, {}, body), Guard(allow_private=True)).outcome.delivered
    assert one.received[0].body == body


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_failures(status: int) -> None:
    with receiver() as elsewhere, receiver(answer(status, Location=elsewhere.url)) as one:
        sent = post(one)
    assert (sent.outcome.status_code, elsewhere.connections) == (status, 0)
    assert "redirects are not followed" in (sent.outcome.error or "")
    assert elsewhere.url in (sent.response or "")


@pytest.mark.parametrize("status", [400, 404, 410, 429, 500, 503])
def test_other_answers_are_failures(status: int) -> None:
    with receiver(answer(status)) as one:
        sent = post(one)
    assert f"it answered {status}" in (sent.outcome.error or "")
    assert sent.outcome.gone == (status == 410)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("17", 17, 17),
        (" 0 ", 0, 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
        ("soon", None, None),
        ("-5", None, None),
        ("1e9", None, None),
        ("99999999999999", None, None),
        ("٣", 3, 3),
        ("Wed, 21 Oct 99999999999999999999 07:28:00 GMT", None, None),
        ("Wed, 21 Oct 2015 07:28:00 +99999999999999999999", None, None),
        (",", None, None),
        ("", None, None),
    ],
)
def test_retry_after(text: str, low: float | None, high: float | None) -> None:
    assert (
        http_client._retry_after(text) == pytest.approx(low)
        if low is not None
        else http_client._retry_after(text) is None
    )


def test_retry_after_counts_for_429_and_503_alone() -> None:
    for status, wanted in ((429, 30.0), (503, 30.0), (500, None), (404, None)):
        with receiver(answer(status, Retry_After="30")) as one:
            assert post(one).outcome.retry_after == wanted


def soon(one: Receiver, guard: Guard = OPEN) -> SentRequest:
    began = time.monotonic()
    sent = post(one, guard)
    assert time.monotonic() - began < SOON
    return sent


def test_a_receiver_that_hangs_is_left() -> None:
    with receiver(hang) as one:
        assert soon(one, SHORT).outcome.error == "no complete answer within 400ms"


def test_a_receiver_that_resets_is_a_failure() -> None:
    with receiver(reset) as one:
        assert "closed the connection" in (soon(one).outcome.error or "")


def test_a_receiver_that_says_no_http() -> None:
    def gibberish(connection: socket.socket, _: Receiver) -> None:
        connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")

    with receiver(gibberish) as one:
        assert "not a complete HTTP response" in (post(one).outcome.error or "")


def test_a_byte_at_a_time_in_the_headers_ends_with_the_deadline() -> None:
    with receiver(drip(b"HTTP/1.1 200 OK\r\nX-A: ", b"a")) as one:
        assert soon(one, SHORT).outcome.error == "no complete answer within 400ms"


def test_a_byte_at_a_time_in_the_body_does_not_undo_the_answer() -> None:
    """The status has decided; what follows is for the log, and is not waited for."""
    with receiver(drip(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"b")) as one:
        sent = soon(one)
    assert sent.outcome.delivered
    assert json.loads(sent.response or "")["truncated"]


def test_informational_answers_without_end_end_with_the_deadline() -> None:
    with receiver(drip(b"", b"HTTP/1.1 102 Processing\r\n\r\n", 0.01)) as one:
        assert soon(one, SHORT).outcome.error == "no complete answer within 400ms"


def test_of_a_gigabyte_only_the_beginning_is_read() -> None:
    with receiver(flood(1 << 30)) as one:
        sent = soon(one)
    assert sent.outcome.delivered
    assert len(json.loads(sent.response or "")["body"]) == http_client.KEPT_BODY
    assert one.flooded < 32 << 20  # what the system's own buffers took


def test_headers_without_end_are_refused() -> None:
    with receiver(drip(b"HTTP/1.1 200 OK\r\nX-A: ", b"a" * 65536, 0.0)) as one:
        assert "not a complete HTTP response" in (soon(one).outcome.error or "")


def test_a_closed_port() -> None:
    with socket.socket() as silent:  # it has the port and does not listen: nobody else can be there
        silent.bind(("127.0.0.1", 0))
        sent = send(Request(f"http://127.0.0.1:{silent.getsockname()[1]}/", {}, b""), OPEN)
    assert sent.outcome.error == "127.0.0.1 refused the connection"


def test_an_answer_that_comes_before_all_was_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1000)
            while connection.recv(65536):
                pass
            connection.close()

        threading.Thread(target=serve, daemon=True).start()
        port = server.getsockname()[1]
        sent = send(Request(f"http://127.0.0.1:{port}/", {}, b"x" * 5_000_000), Guard(allow_private=True))
    assert sent.outcome.status_code == 413


# --- where it goes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[::1]"])
def test_ones_own_machine_is_refused_by_whatever_name(host: str) -> None:
    with receiver() as one:
        sent = post(one, Guard(deadline=SOON), url=f"http://{host}:{one.port}/")
        assert one.connections == 0
    assert "where nothing is delivered" in (sent.outcome.error or ""), sent


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "169.254.169.254", "[64:ff9b::7f00:1]"])
def test_some_addresses_stay_closed_although_private_ones_are_allowed(host: str) -> None:
    with receiver() as one:
        sent = post(one, Guard(allow_private=True, deadline=SOON), url=f"http://{host}:{one.port}/")
        assert one.connections == 0
    assert "where nothing is delivered" in (sent.outcome.error or "")
    assert "allow_private" not in (sent.outcome.error or "")


def test_one_forbidden_answer_among_others_is_enough() -> None:
    with receiver() as one:
        for answers in (["127.0.0.1", "93.184.216.34"], ["93.184.216.34", "127.0.0.1"], ["93.184.216.34", "::1"]):
            sent = post(one, Guard(resolve=lambda *_, a=answers: a), url=f"http://hook.example:{one.port}/")
            assert "where nothing is delivered" in (sent.outcome.error or "")
        assert one.connections == 0


def test_a_name_is_resolved_once_and_a_later_lie_is_not_heard() -> None:
    """DNS rebinding: the first answer is checked, the second would lead inside."""
    asked: list[str] = []

    def lying(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["192.0.2.1"] if len(asked) == 1 else ["127.0.0.1"]

    with receiver() as one:
        sent = post(one, Guard(resolve=lying, deadline=3), url=f"http://hook.example:{one.port}/")
        assert one.connections == 0
    assert asked == ["hook.example"]
    assert "192.0.2.1" in (sent.outcome.error or "")


def test_the_connection_goes_to_the_checked_address_and_keeps_the_name() -> None:
    """Nobody else asks the system's resolver: it does not know this name."""
    with receiver() as one:
        guard = Guard(allow_private=True, resolve=lambda *_: ["127.0.0.1"], deadline=SOON)
        sent = post(one, guard, url=f"http://HOOK.example:{one.port}/x")
    assert sent.outcome.delivered
    assert one.received[0].headers["host"] == f"hook.example:{one.port}"


def test_the_next_address_is_tried() -> None:
    with receiver() as one:
        guard = Guard(allow_private=True, resolve=lambda *_: ["127.0.0.2", "127.0.0.1"], deadline=SOON)
        assert post(one, guard, url=f"http://hook.example:{one.port}/").outcome.delivered


def test_a_name_without_an_address() -> None:
    assert "no address" in (
        send(Request("http://a.example/", {}, b""), Guard(resolve=lambda *_: [])).outcome.error or ""
    )

    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    sent = send(Request("http://a.example/", {}, b""), Guard(resolve=unknown))
    assert sent.outcome.error == "a.example cannot be resolved: Name or service not known"


def test_a_resolver_that_hangs_is_left() -> None:
    with receiver() as one:

        def slow(host: str, port: int) -> list[str]:
            one.over.wait(10)
            return ["127.0.0.1"]

        began = time.monotonic()
        sent = post(one, Guard(allow_private=True, resolve=slow, deadline=QUICK))
        assert time.monotonic() - began < SOON
    assert sent.outcome.error == "no complete answer within 400ms"


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as proxy, receiver() as one:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert post(one).outcome.delivered
        assert (proxy.connections, one.connections) == (0, 1)


def test_tls_is_made_with_the_name_and_its_certificate_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    named = ["-subj", "/CN=hook.example", "-addext", "subjectAltName=DNS:hook.example"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", *kind, *named, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with receiver(tls=context) as one:
        guard = Guard(allow_private=True, resolve=lambda *_: ["127.0.0.1"], deadline=SOON)
        untrusted = post(one, guard, url=f"https://hook.example:{one.port}/")
        assert "no TLS with the receiver" in (untrusted.outcome.error or "")
        trusting = ssl.create_default_context(cafile=str(certificate))
        monkeypatch.setattr(http_client, "_tls", lambda: trusting)
        wrong_name = post(one, guard, url=f"https://other.example:{one.port}/")
        assert "no TLS with the receiver" in (wrong_name.outcome.error or "")
        assert one.received == []
        assert post(one, guard, url=f"https://hook.example:{one.port}/").outcome.delivered


def test_tls_that_never_comes_ends_with_the_deadline() -> None:
    """The handshake in crumbs: each single wait is short, the whole is not."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        over = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc")
                while not over.wait(0.05):
                    connection.sendall(b"\x00")

        threading.Thread(target=serve, daemon=True).start()
        began = time.monotonic()
        sent = send(Request(f"https://127.0.0.1:{server.getsockname()[1]}/", {}, b""), SHORT)
        over.set()
        assert time.monotonic() - began < SOON
        assert sent.outcome.error == "no complete answer within 400ms"

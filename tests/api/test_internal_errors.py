"""A mistake in Headway itself: told as one, in the log, and no reason to end a connection."""

from __future__ import annotations

import http.client
import json
import logging
from contextlib import closing

import pytest

from tests.support.service import Site


def test_after_a_mistake_the_connection_goes_on(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(number: int, *, deleted: bool = False) -> None:
        raise ZeroDivisionError(number)

    site.http.get("/api/webhooks/1")
    (client,) = site.server.service._clients.values()
    monkeypatch.setattr(client.webhooks, "get", broken)
    with closing(http.client.HTTPConnection("127.0.0.1", site.server.port, timeout=30)) as connection:
        with caplog.at_level(logging.ERROR):
            connection.request("GET", "/api/webhooks/1")
            answered = connection.getresponse()
            said = json.loads(answered.read())
        assert (answered.status, said["code"], answered.headers["connection"]) == (500, "mistake", None)
        assert sum("ZeroDivisionError" in (one.exc_text or "") for one in caplog.records) == 1, "told once"
        same = connection.sock
        assert same is not None
        connection.request("GET", "/api/webhooks")
        assert connection.getresponse().status == 200
        assert connection.sock is same

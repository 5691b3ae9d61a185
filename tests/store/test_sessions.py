"""Sessions of browsers: begun with a token, kept as a hash, worth what the token is worth, ended at once or by time."""

from __future__ import annotations

import hashlib
import logging
import re
from pathlib import Path

import pytest

from headway.engine.client.tokens import Live, live_among
from headway.engine.maintenance.pruner import INTERVAL, Pruner
from headway.errors import NotFound
from headway.model.access.permissions import fingerprint
from headway.model.jobs.job import Actor
from headway.store.access import sessions
from headway.store.db import open_database
from tests.support.life import Life


def begin(life: Life, plain: str) -> str:
    session = life.client.sessions.begin(plain)
    assert session is not None
    return session


def test_a_session_is_who_its_token_is(life: Life) -> None:
    token, plain = life.client.tokens.create("ci", "operator", tenant="default")
    session = begin(life, plain)
    assert re.fullmatch(r"hws_[A-Za-z0-9_-]{43}", session)
    visitor = life.client.sessions.visitor(session)
    assert visitor == life.client.tokens.visitor(plain)
    assert visitor is not None
    assert visitor.actor == Actor("token", str(token.id), "ci")


def test_only_the_hash_is_stored_and_nothing_is_told(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token, plain = life.client.tokens.create("ci", "viewer", tenant=None)
    session = begin(life, plain)
    assert life.sql("select hash, token_id from hw_session") == [
        (hashlib.sha256(session.encode()).hexdigest(), token.id)
    ]
    life.client.sessions.end(session)
    events = life.sql("select * from hw_event where thing = 'token'")
    assert len(events) == 1, "who logs in changes nothing"
    said = caplog.text + str(events)
    for secret in (session, plain, fingerprint(session), fingerprint(plain)):
        assert secret[5:20] not in said


def test_a_text_that_is_no_live_token_begins_nothing(life: Life) -> None:
    token, plain = life.client.tokens.create("a", "admin", tenant=None)
    _, short = life.client.tokens.create("b", "admin", tenant=None, expires="1h")
    session = begin(life, plain)
    life.clock.advance("1h")
    wrong = plain[:-1] + ("A" if plain[-1] != "A" else "B")
    for text in ("", "hw_", wrong, session, short, fingerprint(plain), "hw_\udcff" + plain[4:]):
        assert life.client.sessions.begin(text) is None, text
    life.client.tokens.revoke(token.id, everywhere=True)
    assert life.client.sessions.begin(plain) is None
    assert life.sql("select count(*) from hw_session") == [(1,)]


def test_a_text_that_is_no_session_is_nobody(life: Life) -> None:
    _, plain = life.client.tokens.create("a", "admin", tenant=None)
    session = begin(life, plain)
    wrong = session[:-1] + ("A" if session[-1] != "A" else "B")
    for text in ("", "hws_", wrong, plain, session[:-1], session + "a", session.upper(), "hws_\udcff" + session[5:]):
        assert life.client.sessions.visitor(text) is None, text
        life.client.sessions.end(text)
    assert life.client.sessions.visitor(session) is not None


def test_a_session_ends_with_its_token_in_every_process(life: Life) -> None:
    token, plain = life.client.tokens.create("ci", "viewer", tenant=None)
    session = begin(life, plain)
    with Life(life.url, database=open_database(life.url, clock=life.clock), clock=life.clock) as elsewhere:
        assert elsewhere.client.sessions.visitor(session) is not None
        life.client.tokens.revoke(token.id, everywhere=True)
        assert elsewhere.client.sessions.visitor(session) is None


def test_a_session_ends_with_its_tokens_time_and_its_tenants_activity(life: Life) -> None:
    life.client.tenants.create("acme")
    _, short = life.client.tokens.create("short", "viewer", tenant=None, expires="1h")
    _, theirs = life.client.tokens.create("theirs", "viewer", tenant="acme")
    first, second = begin(life, short), begin(life, theirs)
    life.clock.advance("59m59s")
    assert life.client.sessions.visitor(first) is not None
    life.clock.advance("1s")
    assert life.client.sessions.visitor(first) is None
    assert life.client.sessions.visitor(second) is not None
    life.client.tenants.deactivate("acme")
    assert life.client.sessions.visitor(second) is None
    life.client.tenants.activate("acme")
    assert life.client.sessions.visitor(second) is not None


def test_a_session_lasts_twelve_hours(life: Life) -> None:
    _, plain = life.client.tokens.create("ci", "viewer", tenant=None)
    session = begin(life, plain)
    life.clock.advance("11h59m59s")
    assert life.client.sessions.visitor(session) is not None
    life.clock.advance("1s")
    assert life.client.sessions.visitor(session) is None
    assert life.client.tokens.visitor(plain) is not None


def test_a_logout_ends_one_session_at_once(life: Life) -> None:
    _, plain = life.client.tokens.create("ci", "viewer", tenant=None)
    one, other = begin(life, plain), begin(life, plain)
    assert one != other
    life.client.sessions.end(one)
    life.client.sessions.end(one)
    assert life.client.sessions.visitor(one) is None
    assert life.client.sessions.visitor(other) is not None
    assert life.client.tokens.visitor(plain) is not None


def test_a_session_of_the_system_acts_for_the_tenant_it_names(life: Life) -> None:
    life.client.tenants.create("acme")
    system = begin(life, life.client.tokens.create("root", "admin", tenant=None)[1])
    theirs = begin(life, life.client.tokens.create("theirs", "admin", tenant="acme")[1])
    visitor = life.client.sessions.visitor(system, "acme")
    assert visitor is not None
    assert (visitor.tenant, visitor.system) == ("acme", True)
    for session, tenant in ((system, "nobody"), (theirs, "default")):
        with pytest.raises(NotFound, match=f"no tenant '{tenant}'"):
            life.client.sessions.visitor(session, tenant)


def test_which_sessions_have_not_ended(life: Life) -> None:
    token, plain = life.client.tokens.create("ci", "viewer", tenant=None)
    old = begin(life, plain)
    life.clock.advance("11h")
    left, kept = begin(life, plain), begin(life, plain)
    life.client.sessions.end(left)
    hashes = [fingerprint(one) for one in (old, left, kept)]
    assert live_among(life.database, [token.id], hashes).sessions == {hashes[0], hashes[2]}
    life.clock.advance("1h")
    found = live_among(life.database, [token.id], hashes)
    assert found == Live(frozenset({token.id}), frozenset({hashes[2]}), True)


@pytest.mark.parametrize("retention", [None, 1e9])
def test_ended_sessions_are_forgotten_in_batches_whatever_the_retention(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retention: float | None
) -> None:
    monkeypatch.setattr(sessions, "BATCH", 2)
    pruner = Pruner(life.database, retention=retention, artifacts=tmp_path)
    _, plain = life.client.tokens.create("ci", "viewer", tenant=None)
    for _ in range(3):
        begin(life, plain)
    life.clock.advance("6h")
    late = begin(life, plain)
    assert pruner.tick() == INTERVAL
    life.clock.advance("6h")
    assert [pruner.tick(), pruner.tick(), pruner.tick()] == [0.0, 0.0, INTERVAL]
    assert life.sql("select hash from hw_session") == [(fingerprint(late),)]

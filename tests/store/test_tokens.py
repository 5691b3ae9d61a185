"""Tokens: shown once, kept as a hash, refused at once when they end."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from datetime import UTC, datetime

import pytest

from headway.engine.client.tokens import any_token
from headway.errors import BadInput, NotFound, WrongState
from headway.model.access.permissions import Role
from headway.model.jobs.job import Actor
from headway.store.db import open_database
from tests.support.life import Life

DAY = 86_400_000_000


def add_tenant(life: Life, name: str) -> int:
    life.sql_write(f"insert into hw_tenant (name, created_at) values ('{name}', 0)")
    ((number,),) = life.sql(f"select id from hw_tenant where name = '{name}'")
    return int(number)


def test_a_token_is_found_by_its_text_and_says_who_comes(life: Life) -> None:
    token, plain = life.client.tokens.create("ci", "operator", tenant="default")
    assert re.fullmatch(r"hw_[A-Za-z0-9_-]{43}", plain)
    assert life.client.tokens.find(plain) == token
    assert (token.role, token.tenant, token.tenant_id, token.state(life.clock.now())) == (
        Role.OPERATOR,
        "default",
        life.client.tenant_id,
        "live",
    )
    visitor = life.client.tokens.visitor(plain)
    assert visitor is not None
    assert (visitor.actor, visitor.system) == (Actor("token", str(token.id), "ci"), False)
    assert (visitor.tenant, visitor.tenant_id, visitor.role) == ("default", token.tenant_id, Role.OPERATOR)


def test_no_two_are_alike_and_another_text_opens_nothing(life: Life) -> None:
    _, plain = life.client.tokens.create("a", "admin", tenant=None)
    _, other = life.client.tokens.create("a", "admin", tenant=None)
    assert plain != other
    wrong = plain[:-1] + ("A" if plain[-1] != "A" else "B")
    hash_itself = hashlib.sha256(plain.encode()).hexdigest()
    for text in (wrong, plain[:-1], plain + "a", "", plain.upper(), "hw_" + hash_itself[:43], "hw_\udcff" + plain[4:]):
        assert life.client.tokens.find(text) is None, text


def test_only_the_hash_is_stored(life: Life) -> None:
    _, plain = life.client.tokens.create("ci", "viewer", tenant=None)
    ((hash, hint),) = life.sql("select hash, hint from hw_token")
    assert hash == hashlib.sha256(plain.encode()).hexdigest()
    assert hint == plain[:7] + "…"
    assert not any(plain in str(row) for row in life.sql("select * from hw_token"))


def test_a_revoked_token_is_refused_at_once_in_every_process(life: Life) -> None:
    token, plain = life.client.tokens.create("ci", "viewer", tenant=None)
    elsewhere = Life(life.url, database=open_database(life.url, clock=life.clock), clock=life.clock)
    with elsewhere:
        assert elsewhere.client.tokens.find(plain) is not None
        revoked = life.client.tokens.revoke(token.id, everywhere=True)
        assert (revoked.revoked_at, revoked.version) == (life.clock.now(), 2)
        assert elsewhere.client.tokens.find(plain) is None
    with pytest.raises(WrongState, match="revoked already"):
        life.client.tokens.revoke(token.id, everywhere=True)
    assert life.client.tokens.list(everywhere=True) == [revoked]


def test_a_token_ends_at_its_time(life: Life) -> None:
    token, plain = life.client.tokens.create("ci", "viewer", tenant=None, expires="1d")
    assert token.expires_at == life.clock.now() + DAY
    life.clock.advance("23h59m59s")
    assert any_token(life.database)
    assert life.client.tokens.find(plain) == token
    life.clock.advance("1s")
    assert life.client.tokens.find(plain) is None
    assert token.state(life.clock.now()) == "expired"
    assert any_token(life.database), "the end of the last token must not open everything to everybody"


def test_the_end_is_a_time_or_a_duration(life: Life) -> None:
    create = life.client.tokens.create
    moment = datetime(2099, 1, 2, tzinfo=UTC)
    made = [create("a", "viewer", tenant=None, expires=wish)[0] for wish in ("2099-01-02T00:00:00Z", moment, 90)]
    assert [one.expires_at for one in made] == [4_070_995_200_000_000] * 2 + [life.clock.now() + 90_000_000]
    for wish, words in (
        ("2001-01-01T00:00:00Z", "must be in the future"),
        ("0s", "must be in the future"),
        ("soon", "duration"),
    ):
        with pytest.raises(BadInput, match=words) as caught:
            create("a", "viewer", tenant=None, expires=wish)
        assert caught.value.field == "expires"


def test_whether_anybody_has_to_show_one(life: Life) -> None:
    """An inactive tenant's token opens nothing, and does not leave the door open either."""
    assert not any_token(life.database)
    tenant_id = add_tenant(life, "acme")
    token, plain = life.client.tokens.create("ci", "admin", tenant="acme")
    assert any_token(life.database)
    life.sql_write(f"update hw_tenant set active = 0 where id = {tenant_id}")
    assert life.client.tokens.find(plain) is None
    assert any_token(life.database)
    life.client.tokens.revoke(token.id, everywhere=True)
    assert not any_token(life.database)


def test_a_tenants_tokens_are_its_own(life: Life) -> None:
    acme = add_tenant(life, "acme")
    system, of_system = life.client.tokens.create("root", "admin", tenant=None)
    ours, _ = life.client.tokens.create("ours", "admin", tenant="default")
    theirs, of_theirs = life.client.tokens.create("theirs", "admin", tenant="acme")
    tokens = life.client.tokens
    assert tokens.list() == [ours]
    assert tokens.list(everywhere=True, limit=2) == [system, ours]
    assert tokens.list(everywhere=True, after=ours.id) == [theirs]
    for foreign in (system, theirs):
        for verb in (tokens.get, tokens.revoke):
            with pytest.raises(NotFound, match=f"no token {foreign.id}"):
                verb(foreign.id)
    assert life.client.tokens.find(of_theirs) is not None
    visitor = tokens.visitor(of_system, "acme")
    assert visitor is not None
    assert (visitor.tenant, visitor.tenant_id, visitor.system) == ("acme", acme, True)
    for text, tenant in ((of_theirs, "default"), (of_system, "nobody")):
        with pytest.raises(NotFound, match=f"no tenant '{tenant}'"):
            tokens.visitor(text, tenant)
    with pytest.raises(NotFound, match="no tenant 'nobody'"):
        tokens.create("x", "viewer", tenant="nobody")


def test_an_impossible_token_is_refused(life: Life) -> None:
    with pytest.raises(BadInput) as caught:
        life.client.tokens.create("ci", "root", tenant=None)
    assert caught.value.field == "role"
    with pytest.raises(BadInput) as caught:
        life.client.tokens.create("a\nb", "viewer", tenant=None)
    assert caught.value.field == "name"
    assert life.sql("select count(*) from hw_token") == [(0,)]


def test_a_token_is_nowhere_but_where_it_was_shown(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    """Planted canaries: neither the texts nor their hashes are in events, logs or errors, or in any other table."""
    caplog.set_level(logging.DEBUG)
    errors: list[str] = []
    plains = []
    for tenant in (None, "default"):
        token, plain = life.client.tokens.create("ci", "admin", tenant=tenant, expires="1h")
        plains.append(plain)
        life.client.tokens.visitor(plain)
        life.client.tokens.revoke(token.id, everywhere=True)
        for wrong in (
            lambda t=token: life.client.tokens.revoke(t.id, everywhere=True),
            lambda p=plain: life.client.tokens.visitor(p, "no"),
        ):
            try:
                wrong()
            except (NotFound, WrongState) as error:
                errors.append(f"{error!r} {error.facts}")
        errors.append(repr(token))
    events = life.sql("select tenant_id, kind, version, actor, data from hw_event where thing = 'token' order by id")
    tenant_id = life.client.tenant_id
    assert [row[:3] for row in events] == [
        (0, "token.created", 1),
        (0, "token.revoked", 2),
        (tenant_id, "token.created", 1),
        (tenant_id, "token.revoked", 2),
    ]
    assert json.loads(events[2][4]) == {
        "name": "ci",
        "role": "admin",
        "tenant": "default",
        "expires_at": life.clock.now() + 3_600_000_000,
    }
    said = "\n".join([caplog.text, *errors, *map(str, events), str(life.sql("select * from hw_answer"))])
    for plain in plains:
        assert plain not in said
        assert plain[7:20] not in said
        assert hashlib.sha256(plain.encode()).hexdigest()[:16] not in said


@pytest.mark.parametrize("revoke", [False, True])
def test_a_token_and_its_event_are_one_transaction(life: Life, revoke: bool) -> None:
    """An event that cannot be written undoes the change."""
    tokens = life.client.tokens
    token, plain = tokens.create("ci", "viewer", tenant=None)
    number, version = (token.id, 2) if revoke else (token.id + 1, 1)
    life.sql_write(
        "insert into hw_event (tenant_id, thing, thing_id, version, kind, at, actor)"
        f" values (0, 'token', {number}, {version}, 'in.the.way', 0, '{{}}')"
    )
    with pytest.raises(Exception, match=r"(?i)unique"):
        tokens.revoke(token.id, everywhere=True) if revoke else tokens.create("other", "viewer", tenant=None)
    assert tokens.find(plain) == token
    assert life.sql("select count(*) from hw_token") == [(1,)]

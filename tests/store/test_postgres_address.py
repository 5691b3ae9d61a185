"""An address that PostgreSQL cannot read is refused in our words, and a refused user is told apart from no server."""

from __future__ import annotations

import psycopg
import pytest

from headway.errors import BadInput, Unreachable
from headway.store.db import open_database
from headway.store.postgres.errors import ours
from headway.store.postgres.url import misread

GOOD = "postgresql://ann@127.0.0.1/x"
UNREADABLE = "postgresql://ann:gehe im@/x"


@pytest.mark.parametrize(("url", "listen", "field"), [(UNREADABLE, None, "database"), (GOOD, UNREADABLE, "listen")])
def test_an_address_that_cannot_be_read(url: str, listen: str | None, field: str) -> None:
    with pytest.raises(BadInput, match=f"^{field}: is not a valid PostgreSQL address") as refusal:
        open_database(url, listen=listen)
    assert refusal.value.field == field
    assert "gehe" not in str(refusal.value)
    assert refusal.value.__context__ is None, "the driver's words would be shown with a traceback"


@pytest.mark.parametrize(
    ("parts", "wrong"),
    [
        ({}, False),
        ({"host": "db", "port": "5432"}, False),
        ({"host": "db,other", "port": "5432,"}, False),
        ({"host": "@abstract"}, False),
        ({"host": "ann", "port": "secret"}, True),
        ({"host": "cret@db"}, True),
    ],
)
def test_pieces_of_a_password_are_noticed(parts: dict[str, object], wrong: bool) -> None:
    assert misread(parts) is wrong


@pytest.mark.parametrize(
    "said",
    [
        'FATAL:  password authentication failed for user "ann"',
        "fe_sendauth: no password supplied",
        'FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "ann"',
        'FATAL:  Peer authentication failed for user "ann"',
    ],
)
def test_a_refused_user_is_told_so(said: str) -> None:
    found = ours(psycopg.OperationalError(f"connection failed: {said}"))
    assert isinstance(found, Unreachable)
    assert "refused the login" in str(found)
    assert "check the user and the password" in str(found)


def test_a_refusal_with_a_code_needs_no_words() -> None:
    found = ours(psycopg.errors.InvalidPassword("FATAL: Passwort-Authentifizierung fehlgeschlagen"))
    assert "refused the login" in str(found)

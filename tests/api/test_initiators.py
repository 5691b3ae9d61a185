"""The actor of a change identifies: login and host, the address of an open caller, a token, a schedule."""

from __future__ import annotations

import asyncio
import getpass
import socket

import httpx
import pytest

from headway.model.jobs.job import Actor
from tests.support.service import Site, shop

GREEN = {"task": "story.generate", "params": {"topic": "green"}}


def test_open_callers_have_the_address_of_their_connection(database_url: str) -> None:
    """The answer that everything is open is kept for a second, and by every address."""
    with shop(database_url) as app:
        mounted = app.asgi(open_on_loopback=True)

        async def made_by(peer: str) -> dict[str, str]:
            transport = httpx.ASGITransport(app=mounted, client=(peer, 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
                author: dict[str, str] = (await http.post("/api/jobs", json=GREEN)).json()["created_by"]
                return author

        for peer in ("127.0.0.1", "127.0.0.2", "::1", "127.0.0.1"):
            assert asyncio.run(made_by(peer)) == {"type": "user", "id": peer, "name": "anonymous"}


def test_a_token_has_its_name_and_number(site: Site) -> None:
    caller = site.as_(site.token(name="ci"))
    (token,) = caller.get("/api/tokens").json()["items"]
    author = caller.post("/api/jobs", json=GREEN).json()["created_by"]
    assert author == {"type": "token", "id": str(token["token_id"]), "name": "ci"}


def test_a_user_of_the_database_has_login_and_host(site: Site) -> None:
    job = site.app.tasks["story.generate"].enqueue(topic="green")
    author = site.http.get(f"/api/jobs/{job.id}").json()["created_by"]
    name = getpass.getuser()
    assert author == {"type": "user", "id": f"{name}@{socket.gethostname()}", "name": name}
    found = site.http.get("/api/jobs", params={"created_by": author["id"]}).json()["items"]
    assert [one["job_id"] for one in found] == [job.id]


@pytest.mark.parametrize(
    ("actor", "text"),
    [
        (Actor("user", "ann@box", "ann"), "ann@box"),
        (Actor("user", "127.0.0.1", "anonymous"), "anonymous (127.0.0.1)"),
        (Actor("user", "1017", "ann"), "ann (1017)"),
        (Actor("user", "", "ann"), "ann"),
        (Actor("token", "4", "ci"), "ci (token 4)"),
        (Actor("schedule", "2", "nightly"), "nightly (schedule 2)"),
        (Actor("worker", "f00d", "box:12"), "box:12"),
        (Actor("system", "", "headway"), "headway"),
    ],
)
def test_the_words_for_an_actor_identify_it(actor: Actor, text: str) -> None:
    assert actor.identified == text

"""Shares of tenants in what a server has few of: direct calls, long requests, threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from headway.api.http.shares import WAITING, Shares, of_tenant, of_tenants
from headway.errors import Busy
from headway.model.access.permissions import Role, Visitor
from headway.model.jobs.job import Actor
from tests.support.service import Site, serving
from tests.support.waiting import until

CODE = "too_many_calls"
# More than a server has threads for the requests of all.
MANY = 60
BATCH = {"jobs": [{"task": "story.generate", "params": {"topic": "fog"}}]}


@pytest.fixture
def site(sqlite_url: str) -> Iterator[Site]:
    with serving(sqlite_url) as made:
        yield made


def visitor(tenant: int, *, system: bool = False) -> Visitor:
    actor = Actor("token", str(tenant), f"of {tenant}")
    return Visitor(actor, f"t{tenant}", tenant, Role.OPERATOR, system=system)


def test_a_tenant_has_half_and_the_system_a_tenth() -> None:
    shares = Shares(20, "direct calls", CODE)
    assert (of_tenants(20), of_tenant(20)) == (18, 9)
    for tenant in (1, 2):
        for _ in range(9):
            shares.enter(visitor(tenant))
        with pytest.raises(Busy) as refused:
            shares.enter(visitor(tenant))
        assert refused.value.code == CODE
    with pytest.raises(Busy) as full:
        shares.enter(visitor(3))
    assert full.value.code == "busy"
    shares.enter(visitor(1, system=True))
    shares.enter(visitor(1, system=True))
    with pytest.raises(Busy):
        shares.enter(visitor(1, system=True))
    shares.leave(visitor(2))
    shares.enter(visitor(3))
    assert shares.taken == 20


def test_direct_calls_of_one_tenant_leave_places_to_others(site: Site) -> None:
    """One operator once held every direct call of the server for an hour."""
    site.app.client.tenants.create("shop")
    shop = site.as_(site.token("operator", tenant="shop"))
    other = site.as_(site.token("operator", name="other"))
    calls = site.server.service.direct_calls = Shares(4, "direct calls", CODE)
    number = site.app.client.sibling(site.app.client.actor, "shop").tenant_id
    calls.enter(visitor(number))  # a call that waits for its lane
    body = {"params": {"topic": "fog"}}
    refused = shop.post("/api/direct/story.generate", json=body)
    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (429, CODE, "5")
    assert other.post("/api/direct/story.generate", json=body).status_code == 200
    calls.leave(visitor(number))
    assert shop.post("/api/direct/story.generate", json=body).status_code == 200


def test_long_requests_of_one_tenant_do_not_stop_another(site: Site) -> None:
    """Batches of one tenant once took every thread, also those that identify callers and answer probes."""
    site.app.client.tenants.create("shop")
    shop = site.as_(site.token("operator", tenant="shop"))
    other = site.as_(site.token("operator", name="other"))
    began, release = threading.Event(), threading.Event()

    def hold() -> None:
        with site.app.database.transaction("hold") as tx:
            tx.run("lock_tenant", id=1)
            began.set()
            release.wait(55)

    with ThreadPoolExecutor(MANY + 1) as pool:
        try:
            holder = pool.submit(hold)  # nothing is written meanwhile, so that each batch waits in its thread
            assert began.wait(55)
            sent = [pool.submit(shop.post, "/api/jobs/batch", json=BATCH) for _ in range(MANY)]
            until(lambda: sum(one.done() for one in sent) == MANY - WAITING - 1, "that all others are refused")
            for client in (other, shop):
                assert client.get("/api/jobs").status_code == 200
            assert httpx.get(f"{site.url}/readyz", trust_env=False, timeout=55).status_code in (200, 503)
        finally:
            release.set()
        answers = [one.result() for one in sent]
        holder.result()
    codes = [answer.status_code for answer in answers]
    assert codes.count(201) == WAITING + 1
    assert codes.count(429) == MANY - WAITING - 1
    assert shop.post("/api/jobs/batch", json=BATCH).status_code == 201

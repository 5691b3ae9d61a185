"""`headway verify` on tenants: their limits, when they were inactive, and that nothing crosses from one to another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from headway.model.access.tenants import Allowance
from headway.store.access import tenants
from headway.store.db import Tx
from tests.support.tenants import add_tenant, furnish
from tests.support.world import ANN, Sabotage, Sabotages, World, broken
from tests.system.test_verify_plans import Town

sabotage = Sabotages()


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    world = World(database_url)
    yield world
    world.db.close()


@pytest.fixture
def town(database_url: str) -> Iterator[Town]:
    town = Town(database_url)
    yield town
    town.db.close()


def change(w: World, kind: str, **fields: Any) -> None:
    def work(tx: Tx) -> None:
        wanted = replace(tenants.lock(tx, "default"), **fields)
        tenants.save(tx, wanted, kind, ANN, wanted.allowance.facts() if kind == "edited" else {})

    w.run(work)


def edit(w: World, **limits: int | None) -> None:
    change(w, "edited", allowance=Allowance().changed(limits))


def switch(w: World, *, active: bool) -> None:
    change(w, "activated" if active else "deactivated", active=active)


def test_a_true_history_has_nothing_to_find(world: World) -> None:
    edit(world, max_running=1)
    world.enqueue(3)
    held = world.claim(3)
    assert len(held) == 1
    switch(world, active=False)
    assert world.claim(3) == []
    world.complete(*held)
    switch(world, active=True)
    edit(world, max_running=None)
    world.complete(*world.claim(3))
    assert broken(world.check(quiet=True)) == set()


def test_tenants_that_have_everything_have_nothing_to_find(town: Town) -> None:
    for name in ("one", "two"):
        client = add_tenant(town.life, name)
        things = furnish(town.life, client)
        assert things.tenant == name
    found = [one for one in town.check().findings if one.invariant == "I-18"]
    assert found == []


@sabotage("I-05", "as number 2 of tenant 1: limit 1")
def more_than_its_tenant_may_run(w: World) -> None:
    edit(w, max_running=1)
    w.take(*w.enqueue(2))


@sabotage("I-11", "but its tenant was inactive since")
def claimed_while_inactive(w: World) -> None:
    ids = w.enqueue()
    switch(w, active=False)
    w.take(*ids)


@sabotage("I-05", "its events lead to active, max_queued None, max_running None, max_schedules None; its row differs")
def a_limit_without_an_event(w: World) -> None:
    w.tamper("update hw_tenant set max_running = 3 where id = 1")


@sabotage("I-05", "its events lead to inactive")
def active_without_an_event(w: World) -> None:
    switch(w, active=False)
    w.tamper("update hw_tenant set active = 1 where id = 1")


@sabotage("I-02", "its history ends with version 2, its row has version 3")
def a_version_without_an_event(w: World) -> None:
    edit(w, max_running=1)
    w.tamper("update hw_tenant set version = 3 where id = 1")


@sabotage("I-18", "it belongs to tenant 7, which does not exist")
def an_answer_of_nobody(w: World) -> None:
    w.tamper("insert into hw_answer (tenant_id, route, key, digest, made, at) values (7, 'r', 'k', 'd', '[]', 1)")


@sabotage("I-18", "it belongs to tenant 8, which does not exist")
def a_turn_of_nobody(w: World) -> None:
    w.tamper("insert into hw_turn (tenant_id, turn) values (8, 1)")


@sabotage("I-18", "it belongs to tenant 1, its event to tenant 2")
def a_token_with_an_event_of_another(w: World) -> None:
    w.tamper(
        "insert into hw_tenant (id, name, created_at) values (2, 'other', 1)",
        "insert into hw_token (id, tenant_id, name, role, hash, hint, created_at, created_by)"
        " values (1, 1, 'n', 'viewer', 'h', 'h', 1, '{}')",
        "insert into hw_event (tenant_id, thing, thing_id, version, kind, at, actor)"
        " values (2, 'token', 1, 1, 'token.created', 1, '{}')",
    )


@pytest.mark.parametrize("case", sabotage, ids=str)
def test_sabotage_is_found(world: World, case: Sabotage) -> None:
    case.is_found(world)


def test_a_tick_that_fired_while_its_tenant_was_inactive_is_found(town: Town) -> None:
    town.clockwork.create()
    town.client.tenants.deactivate("default")
    town.tamper("update hw_tenant set active = 1")
    town.clockwork.advance("6m")
    town.tamper("update hw_tenant set active = 0")
    found = [one for one in town.check(settle=0.0).findings if one.invariant == "I-14"]
    assert [one.text.rpartition(", ")[2] for one in found] == ["and its tenant was inactive"], found


def test_a_tick_that_was_skipped_for_nothing_is_found(town: Town) -> None:
    town.clockwork.create()
    town.tamper("update hw_tenant set active = 0 where id = 1")
    town.clockwork.advance("6m")
    town.tamper("update hw_tenant set active = 1 where id = 1")
    found = [one for one in town.check(settle=0.0).findings if one.invariant == "I-14"]
    assert len(found) == 1, found
    assert "(tenant inactive), and its tenant was active at" in found[0].text

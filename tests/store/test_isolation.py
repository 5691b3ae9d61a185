"""No way into another tenant: every verb and every way of looking, with a number that is another tenant's, answers that
there is no such thing, and nothing has changed. On PostgreSQL behind the second wall too."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from headway.engine.client.client import Client
from headway.engine.client.groups import Groups
from headway.engine.client.schedules import Schedules
from headway.engine.client.sessions import Sessions
from headway.engine.client.templates import Templates
from headway.engine.client.tokens import Tokens
from headway.engine.client.webhooks import Webhooks
from headway.errors import NotFound
from headway.model.jobs import actions as verbs
from headway.model.jobs.filter import JobFilter
from headway.store.db import Tx
from headway.store.groups import views as group_views
from headway.store.jobs import views as job_views
from headway.store.postgres.row_security import walled
from headway.store.queue import queue_views, targets
from headway.store.schedules import schedules
from tests.support.life import Life
from tests.support.tenants import Things, add_tenant, furnish

Call = Callable[[Client, Things], object]
# How each verb is called with something of another tenant.
FOREIGN: dict[tuple[type, str], Call] = {
    (Client, "change_job"): lambda c, t: c.change_job("edit", t.queued, lambda _, job, __: verbs.Change(job, "x")),
    (Client, "cancel"): lambda c, t: c.cancel(t.queued),
    (Client, "interrupt"): lambda c, t: c.interrupt(t.running),
    (Client, "resume"): lambda c, t: c.resume(t.paused),
    (Client, "resolve"): lambda c, t: c.resolve(t.error),
    (Client, "release"): lambda c, t: c.release(t.error),
    (Client, "edit"): lambda c, t: c.edit(t.queued, priority=3),
    (Client, "move"): lambda c, t: c.move(t.queued, to="top"),
    (Client, "reorder"): lambda c, t: c.reorder([t.queued]),
    (Client, "retry"): lambda c, t: c.retry(t.failed),
    (Client, "get"): lambda c, t: c.get(t.done),
    (Client, "pause_target"): lambda c, t: c.pause_target(t.target),
    (Client, "resume_target"): lambda c, t: c.resume_target(t.target),
    (Client, "release_target"): lambda c, t: c.release_target(t.target),
    (Client, "reserve"): lambda c, t: c.reserve(target=t.target),
    (Client, "renew_reservation"): lambda c, t: c.renew_reservation(t.reservation),
    (Client, "release_reservation"): lambda c, t: c.release_reservation(t.reservation),
    (Client, "reservation"): lambda c, t: c.reservation(t.reservation),
    (Groups, "get"): lambda c, t: c.groups.get(t.group),
    (Groups, "cancel"): lambda c, t: c.groups.cancel(t.group),
    (Groups, "retry"): lambda c, t: c.groups.retry(t.failed_group),
    (Schedules, "edit"): lambda c, t: c.schedules.edit(t.schedule, {"note": "x"}),
    (Schedules, "enable"): lambda c, t: c.schedules.enable(t.schedule),
    (Schedules, "disable"): lambda c, t: c.schedules.disable(t.schedule),
    (Schedules, "delete"): lambda c, t: c.schedules.delete(t.schedule),
    (Schedules, "run"): lambda c, t: c.schedules.run(t.schedule),
    (Schedules, "backfill"): lambda c, t: c.schedules.backfill(t.schedule, 0, 1),
    (Schedules, "get"): lambda c, t: c.schedules.get(t.schedule),
    (Schedules, "ticks"): lambda c, t: c.schedules.ticks(t.schedule),
    (Schedules, "reset"): lambda c, t: c.schedules.reset(t.schedule),
    (Schedules, "see"): lambda c, t: c.schedules.see(t.schedule),
    (Schedules, "preview"): lambda c, t: c.schedules.preview(t.schedule),
    (Templates, "edit"): lambda c, t: c.templates.edit(t.template, priority=3),
    (Templates, "archive"): lambda c, t: c.templates.archive(t.template),
    (Templates, "get"): lambda c, t: c.templates.get(t.template),
    (Templates, "job"): lambda c, t: c.templates.job(t.template),
    (Tokens, "get"): lambda c, t: c.tokens.get(t.token),
    (Tokens, "revoke"): lambda c, t: c.tokens.revoke(t.token),
    (Webhooks, "edit"): lambda c, t: c.webhooks.edit(t.webhook, description="x"),
    (Webhooks, "delete"): lambda c, t: c.webhooks.delete(t.webhook),
    (Webhooks, "rotate"): lambda c, t: c.webhooks.rotate(t.webhook),
    (Webhooks, "test"): lambda c, t: c.webhooks.test(t.webhook),
    (Webhooks, "get"): lambda c, t: c.webhooks.get(t.webhook),
    (Webhooks, "deliveries"): lambda c, t: c.webhooks.deliveries(webhook=t.webhook),
    (Webhooks, "delivery"): lambda c, t: c.webhooks.delivery(t.delivery),
    (Webhooks, "first_try"): lambda c, t: c.webhooks.first_try(t.delivery, 0.0),
    (Webhooks, "tries"): lambda c, t: c.webhooks.tries(t.delivery),
    (Webhooks, "replay"): lambda c, t: c.webhooks.replay(t.delivery),
}
# These name nothing that could be another tenant's.
HARMLESS = {
    *(
        (Client, name)
        for name in ("sibling", "keyed", "recall", "transact", "known_task", "enqueue", "enqueue_many", "enqueue_alike")
    ),
    *((Client, name) for name in ("enqueue_on", "pause_queue", "resume_queue", "check_secrets", "check_stored")),
    (Sessions, "cookie_key"),  # one for the installation
    *((kind, "create") for kind in (Groups, Schedules, Templates, Tokens, Webhooks)),
    *((kind, "list") for kind in (Schedules, Templates, Tokens, Webhooks)),
    (Schedules, "check"),
    (Schedules, "may_define"),  # it takes a schedule that the client has read
    (Tokens, "find"),
    (Tokens, "visitor"),
    *((Sessions, name) for name in ("begin", "visitor", "end")),  # they are shown a secret, and no number
    (Webhooks, "all_deliveries"),
    (Webhooks, "secret"),
    (Webhooks, "rotate_secret"),
}
Look = Callable[[Tx, int, Things], object]
LOOKS: dict[str, Look] = {
    "view": lambda tx, me, t: job_views.view(tx, me, t.done),
    "explain": lambda tx, me, t: queue_views.explain(tx, me, t.queued),
    "last_of_chain": lambda tx, me, t: job_views.last_of_chain(tx, me, t.failed),
    "target": lambda tx, me, t: targets.shown(tx, me, t.target),
    "group_view": lambda tx, me, t: group_views.group_view(tx, me, t.group),
    "execution": lambda tx, me, t: group_views.group_view(tx, me, t.execution, "execution"),
    "schedule": lambda tx, me, t: schedules.find(tx, me, t.schedule),
}


@pytest.fixture(scope="module", params=["plain", "walled"])
def mine(request: pytest.FixtureRequest, shared_life: Life) -> tuple[Client, Things]:
    """Somebody of one tenant, and what belongs to another."""
    life, name = shared_life, f"mine {request.param}"
    theirs = furnish(life, add_tenant(life, f"theirs {request.param}"))
    client = add_tenant(life, name)
    if request.param == "walled":
        client.database = walled(life.database, client.tenant_id)
    return client, theirs


def everything(life: Life) -> dict[str, list[Any]]:
    tables = ("job", "event", "group", "schedule", "template", "target", "token", "endpoint", "delivery", "reservation")
    return {table: life.sql(f"select * from hw_{table} order by id") for table in tables}


@pytest.mark.parametrize("verb", FOREIGN, ids=lambda verb: f"{verb[0].__name__}.{verb[1]}")
def test_a_verb_finds_nothing_of_another_tenant(
    shared_life: Life, mine: tuple[Client, Things], verb: tuple[type, str]
) -> None:
    client, theirs = mine
    before = everything(shared_life)
    with pytest.raises(NotFound):
        FOREIGN[verb](client, theirs)
    assert everything(shared_life) == before


def test_every_verb_is_tried() -> None:
    kinds = (Client, Groups, Schedules, Sessions, Templates, Tokens, Webhooks)
    verbs = {
        (kind, name)
        for kind in kinds
        for name, found in vars(kind).items()
        if inspect.isfunction(found) and name[0] != "_"
    }
    assert verbs == FOREIGN.keys() | HARMLESS


@pytest.mark.parametrize("look", LOOKS)
def test_no_visitor_sees_a_thing_of_another_tenant(shared_life: Life, mine: tuple[Client, Things], look: str) -> None:
    client, theirs = mine
    with client.database.read() as tx, pytest.raises(NotFound):
        LOOKS[look](tx, client.tenant_id, theirs)


def test_lists_have_only_what_is_ones_own(shared_life: Life, mine: tuple[Client, Things]) -> None:
    client, _ = mine
    own = furnish(shared_life, add_tenant(shared_life, f"{client.tenant} furnished"))
    client = client.sibling(client.actor, own.tenant)
    if "walled" in own.tenant:
        client.database = walled(shared_life.database, client.tenant_id)
    tenant_id = client.tenant_id
    with client.database.read() as tx:
        jobs = job_views.list_jobs(tx, tenant_id, JobFilter(), 200).items
        runs = job_views.list_runs(tx, tenant_id, JobFilter(), 200).items
        found = group_views.groups_page(tx, tenant_id).items
        executions = group_views.groups_page(tx, tenant_id, kind="execution").items
        desks = targets.listed(tx, tenant_id).items
        counted = job_views.counts(tx, tenant_id, since=0)
    with client.database.beyond().read() as tx:  # why a job waits depends on everybody's
        queue = queue_views.queue(tx, tenant_id, 200)
    assert {one.job.tenant_id for one in jobs} == {tenant_id}
    assert {one.tenant_id for one in runs} == {tenant_id}
    assert [one.group.id for one in found] == [own.failed_group, own.group]
    assert [one.group.id for one in executions] == [own.execution]
    assert {one.name for one in desks} == {f"desk of {own.tenant}", f"other desk of {own.tenant}"}
    assert {one.view.job.tenant_id for one in queue} == {tenant_id}
    assert sum(counted.by_status.values()) == len(jobs)
    assert [one.id for one in client.schedules.list()] == [own.schedule]
    assert [one.id for one in client.templates.list()] == [own.template]
    assert [one.id for one in client.tokens.list()] == [own.token]
    assert [one.id for one in client.webhooks.list()] == [own.webhook]
    assert {one.tenant_id for one in client.webhooks.deliveries(webhook=own.webhook).items} == {tenant_id}
    assert {one.tenant_id for one in client.webhooks.all_deliveries().items} == {tenant_id}

"""Targets: their holders, the queue behind each, and pausing them."""

from __future__ import annotations

from starlette.responses import Response

from headway.dashboard.held_jobs import used_up
from headway.dashboard.page import Form, PageRequest, Pages
from headway.errors import NotFound
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.job import Actor
from headway.model.queue.target import TargetState, TargetView, check_paused
from headway.model.values import state_names
from headway.model.values.names import check_name
from headway.store.db import Tx
from headway.store.jobs import views as job_views
from headway.store.jobs.views import JobView
from headway.store.queue import occupancy, targets
from headway.store.queue.lanes import find_target
from headway.text.events import event_text
from headway.text.targets import remedy, resumed

pages = Pages("targets")
LISTED, FIRST, RECENT, EVENTS = 50, 50, 15, 50


@pages.get("/targets")
def ls(page: PageRequest) -> Response:
    """Those that wait for a person come first, whatever they are called."""
    state, cursor = page.asked.given("state"), page.asked.given("cursor")
    wanted = state_names.target_states([state] if state else ())
    with page.look() as tx:
        first = not wanted and cursor is None
        held = targets.with_waiting(tx, targets.blocked(tx, page.tenant_id, FIRST)) if first else []
        more = targets.count_blocked(tx, page.tenant_id) - len(held) if first else 0
        found = targets.listed(tx, page.tenant_id, states=wanted, limit=LISTED, cursor=cursor)
        holders = job_views.views_of(tx, page.tenant_id, [one.held_by for one in held if one.held_by is not None])
    return page.render(
        "targets.html",
        found=found,
        held=held,
        over=used_up(holders, page.now),
        more=more,
        states=[one.value for one in TargetState],
        chosen=state,
        remedy=remedy,
    )


@pages.get("/targets/show")
def show(page: PageRequest) -> Response:
    name = _name(page.asked)
    with page.look() as tx:
        seen = targets.shown(tx, page.tenant_id, name)
        version: int = find_target(tx, page.tenant_id, name)[5]
        holder = _job(tx, page, seen.held_by if seen.held_by is not None else seen.running)
        queue = occupancy.target_queue(tx, page.tenant_id, seen.id, FIRST)
        reserved = occupancy.on_target(tx, page.tenant_id, seen.id)
        recent = job_views.list_jobs(tx, page.tenant_id, JobFilter(target=name), RECENT)
        events = job_views.history(tx, "target", seen.id, after=max(0, version - EVENTS))
    return page.render(
        "target.html",
        seen=seen,
        todo=remedy(seen),
        holder=holder,
        over=used_up([holder] if holder is not None else [], page.now),
        queue=[one for one in queue if holder is None or one.job.id != holder.job.id],
        reserved=reserved,
        recent=recent.items,
        events=[event_text(event) for event in reversed(events)],
        actor=lambda text: Actor.parse(text).shown,
    )


def _job(tx: Tx, page: PageRequest, job_id: int | None) -> JobView | None:
    if job_id is None:
        return None
    try:
        return job_views.view(tx, page.tenant_id, job_id)
    except NotFound:
        return None


@pages.post("/targets/pause")
def pause(page: PageRequest) -> Response:
    name = _name(page.form)
    page.client.pause_target(name, note=page.form.given("note"))
    return page.done(
        f"The target {name} is paused: no further job starts on it.", undo=("/targets/resume", {"name": name})
    )


@pages.post("/targets/resume")
def resume(page: PageRequest) -> Response:
    name = _name(page.form)
    # Another request may resume the target after this check, which does no harm. The message shows the final state.
    check_paused(_shown(page, name))
    page.client.resume_target(name)
    return page.done(resumed(_shown(page, name)))


def _shown(page: PageRequest, name: str) -> TargetView:
    with page.look() as tx:
        return targets.shown(tx, page.tenant_id, name)


def _name(form: Form) -> str:
    """As it was given: blanks around a name belong to it."""
    return check_name(dict(form.fields).get("name", ""), field="name")

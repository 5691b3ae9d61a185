"""Forms that act on a job, from cancel to move."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from starlette.responses import Response

from headway.clock import micros
from headway.dashboard import form_tokens
from headway.dashboard.page import PageRequest, Pages
from headway.dashboard.pages.job import number, refused
from headway.errors import BadInput, Refused, WrongState
from headway.model.jobs.actions import CLEARED, Cleared
from headway.model.jobs.available_actions import done
from headway.model.jobs.job import JobRecord
from headway.model.jobs.states import State, Verb
from headway.model.values.json import from_json
from headway.model.values.names import check_budget
from headway.model.values.times import instant, seconds
from headway.store.jobs import positions
from headway.store.jobs import views as job_views

pages = Pages("job verbs")
Undo = tuple[str, Mapping[str, object]]
Act = Callable[[PageRequest, int], Response]


def form(verb: Verb) -> Callable[[Act], Act]:
    """Declares the form of an action.

    An error of a form on the job's page is shown beside the form; any other page gets a flash message.
    """

    def declare(act: Act) -> Act:
        @wraps(act)
        def run(page: PageRequest, job_id: int) -> Response:
            try:
                return act(page, job_id)
            except (BadInput, WrongState, Refused) as error:
                if "sheet" not in page.form:
                    raise
                return refused(page, job_id, verb.value, error)

        declared: Act = pages.post(f"/jobs/{{job_id:int}}/{verb.value}")(run)
        return declared

    return declare


# --- actions without fields ---------------------------------------------------------------------------------------


@form(Verb.CANCEL)
def cancel(page: PageRequest, job_id: int) -> Response:
    return page.done(done(Verb.CANCEL, page.client.cancel(job_id)))


@form(Verb.INTERRUPT)
def interrupt(page: PageRequest, job_id: int) -> Response:
    job = page.client.interrupt(job_id)
    undo: Undo | None = (f"/jobs/{job_id}/resume", {}) if job.status is State.WAITING else None
    return page.done(done(Verb.INTERRUPT, job), undo=undo)


@form(Verb.RELEASE)
def release(page: PageRequest, job_id: int) -> Response:
    return page.done(done(Verb.RELEASE, page.client.release(job_id)))


# --- actions with fields ------------------------------------------------------------------------------------------


@form(Verb.RESUME)
def resume(page: PageRequest, job_id: int) -> Response:
    return page.done(done(Verb.RESUME, page.client.resume(job_id, _budget(page))))


@form(Verb.RESOLVE)
def resolve(page: PageRequest, job_id: int) -> Response:
    text = page.form.given("result")
    result = None if text is None else from_json(text, field="result")
    return page.done(done(Verb.RESOLVE, page.client.resolve(job_id, result)))


@form(Verb.RETRY)
def retry(page: PageRequest, job_id: int) -> Response:
    job = page.client.get(job_id)
    params = _other_params(page, job)
    client = form_tokens.keyed(page)
    made = client.retry(job_id, params=params, priority=_other_priority(page, job), budget=_budget(page))
    text = f"Job {job_id} is retried as job {made.id}{form_tokens.already(client)}."
    return page.done(text, to=page.address(f"/jobs/{made.id}") if page.form.get("sheet") else None)


@form(Verb.EDIT)
def edit(page: PageRequest, job_id: int) -> Response:
    job = page.client.get(job_id)
    changes = _changes(page, job)
    if not changes:
        return page.done(f"Job {job_id} was not changed.")
    return page.done(done(Verb.EDIT, page.client.edit(job_id, if_version=number(page.form, "version"), **changes)))


def _changes(page: PageRequest, job: JobRecord) -> dict[str, Any]:
    """Returns the fields whose values differ from the job's.

    An emptied time is removed.
    """
    found: dict[str, Any] = {"params": _other_params(page, job), "priority": _other_priority(page, job)}
    for name, known in (("not_before", job.not_before), ("expires_at", job.expires_at)):
        if name in page.form:
            found[name] = _other_time(page, name, known)
    return {name: value for name, value in found.items() if value is not None}


def _other_priority(page: PageRequest, job: JobRecord) -> int | None:
    given = number(page.form, "priority")
    return None if given == job.priority else given


def _other_params(page: PageRequest, job: JobRecord) -> dict[str, Any] | None:
    text = page.form.given("params")
    if text is None:
        return None
    given = from_json(text, field="params")
    if not isinstance(given, dict):
        raise BadInput('params must be a JSON object, like {"topic": "fog"}', field="params")
    # Compare as text, because 1, 1.0 and True are equal in Python.
    return None if _canonical(given) == _canonical(json.loads(job.unfilled or job.params)) else given


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _other_time(page: PageRequest, name: str, known: int | None) -> int | Cleared | None:
    text = page.form.given(name)
    if text is None:
        return None if known is None else CLEARED
    when = moment(text, page.now, field=name)
    return None if when == known else when


def moment(text: str, now: int, *, field: str) -> int:
    """Reads an instant in RFC 3339, or a duration from now."""
    return instant(text, field=field) if "-" in text[1:] else now + micros(seconds(text, field=field))


def _budget(page: PageRequest) -> dict[str, float] | None:
    text = page.form.given("budget")
    if text is None:
        return None
    given = from_json(text, field="budget")
    return dict(check_budget(given))  # type: ignore[arg-type]  # check_budget refuses anything but a mapping


# --- its place in the queue ---------------------------------------------------------------------------------------


@form(Verb.MOVE)
def move(page: PageRequest, job_id: int) -> Response:
    undo = _where_it_was(page, job_id)
    given = {name: number(page.form, name) for name in ("before", "after", "rank")}
    moved = page.client.move(job_id, to=page.form.given("to"), if_version=number(page.form, "version"), **given)
    with page.read() as tx:
        rank = job_views.view(tx, page.tenant_id, job_id).rank
    text = f"Job {job_id} is now at rank {rank}." if rank is not None else f"Job {job_id} was moved."
    return page.done(text, undo=_as_moved(undo, moved))


def _where_it_was(page: PageRequest, job_id: int) -> tuple[JobRecord, str, dict[str, object]]:
    """Returns the form that undoes a move: next to its old neighbour, or back to its priority."""
    with page.read() as tx:
        job = job_views.view(tx, page.tenant_id, job_id).job
        ahead, behind = positions.neighbours(tx, job)
    if behind is not None:
        return job, "move", {"before": behind}
    return (job, "move", {"after": ahead}) if ahead is not None else (job, "edit", {"priority": job.priority})


def _as_moved(undo: tuple[JobRecord, str, dict[str, object]], moved: JobRecord) -> Undo | None:
    was, verb, fields = undo
    if (was.priority, was.position) == (moved.priority, moved.position):
        return None
    return f"/jobs/{moved.id}/{verb}", {**fields, "version": moved.version}

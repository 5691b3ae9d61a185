"""The page of a job: what it is, what becomes of it and what can be done; and the form that makes a new one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.responses import Response

from headway.api.jobs import new_job
from headway.api.known_tasks import offered_tasks
from headway.api.problems import status_of
from headway.dashboard import once
from headway.dashboard.copying import Copies, copies
from headway.dashboard.expected import at_work, behind_late, late_jobs
from headway.dashboard.linking import linked
from headway.dashboard.pages import Form, Page, Pages
from headway.engine.limits import lives
from headway.errors import BadInput, HeadwayError, Refused, WrongState
from headway.model.access import Role, check_new_params
from headway.model.becoming import becomes
from headway.model.expecting import is_overdue
from headway.model.job import Actor, Job, Options
from headway.model.prospects import VERBS, closed_fields, needs_budget, prospects
from headway.model.states import State
from headway.model.telling import spells, timeline
from headway.model.values import from_json, instant_text, whole
from headway.model.waiting import Explanation
from headway.store import cases, queue_reading, reading
from headway.store.db import Tx
from headway.store.reading import JobView

pages = Pages("jobs")
EMPTY = Form(())
_RULE = re.compile(r"Annotated\[(.*?), Rule\(\w*\)\]")
LINES, MOST_LINES = 200, 10_000
EVENTS = 200
_FIELDS = ("task", "params", "priority", "delay", "target", "key")


@dataclass(frozen=True, slots=True)
class Tried:
    """A form as it was filled in, and what was wrong with it. Without a problem it was only opened."""

    verb: str = ""
    problem: str | None = None
    place: str | None = None
    form: Form = EMPTY

    def value(self, verb: str, name: str, otherwise: object = "") -> object:
        kept = self.verb == verb and self.problem is not None and name in self.form
        return self.form.get(name) if kept else otherwise

    def wrong(self, verb: str, name: str) -> bool:
        """Whether the problem is with this field: `params.topic` is with `params`."""
        if self.verb != verb or self.place is None:
            return False
        return self.place == name or self.place.startswith((f"{name}.", f"{name}["))


# --- one job ------------------------------------------------------------------------------------------------------


@pages.get("/jobs/{job_id:int}")
def show(page: Page, job_id: int) -> Response:
    return shown(page, job_id, Tried())


@pages.get("/jobs/{job_id:int}/{verb:str}")
def opened(page: Page, job_id: int, verb: str) -> Response:
    """The same with one of its forms open."""
    if verb not in VERBS:
        raise HTTPException(404)
    return shown(page, job_id, Tried(verb))


def refused(page: Page, job_id: int, verb: str, error: HeadwayError) -> Response:
    """The page again, with what was filled in."""
    return shown(page, job_id, Tried(verb, str(error), error.field, page.form), status=status_of(error))


def shown(page: Page, job_id: int, tried: Tried, status: int = 200) -> Response:
    count, explained = _lines_asked(page), _explained(page, page.client.get(job_id))
    with page.read() as tx:
        view = reading.view(tx, page.tenant_id, job_id)
        case, chain = cases.case(tx, view, now=page.now, explained=explained)
        events = reading.events(tx, job_id, after=max(0, view.job.version - EVENTS), limit=EVENTS)
        # What is not brought up to date is not read again: a log may have 10,000 lines.
        lines = [] if page.live else reading.last_lines(tx, job_id, count)
        files = reading.artifacts(tx, job_id)
        expected = _expected(tx, page, view, explained)
    not_yours, closed = _not_yours(page, view.job), closed_fields(view.job, page.now)
    return page.render(
        "job.html",
        status=status,
        view=view,
        job=view.job,
        case=case,
        explained=explained,
        next=[*becomes(case), *expected],
        prospects=prospects(case),
        over=needs_budget(case),
        closed=closed if not_yours is None else {**closed, "params": not_yours},
        not_yours=not_yours,
        chain=chain,
        older=len(case.chain) - len(chain),
        entries=timeline(events),
        cut=view.job.version > EVENTS,
        claims=spells(events),
        lines=lines,
        count=count,
        most=MOST_LINES,
        files=files,
        options=Options.parse(view.job.options),
        copies=None if page.live else _copies(page, view),
        maker=Actor.parse(view.job.created_by).shown,
        linked=lambda text: linked(text, page.address),
        instant_text=instant_text,
        tried=tried,
    )


def _copies(page: Page, view: JobView) -> Copies:
    with_token = page.visitor.actor.type == "token"
    return copies(view.job, view.target, _address(page), now=page.now, with_token=with_token)


def _explained(page: Page, job: Job) -> Explanation | None:
    """Beyond the wall: what is in its way may be another tenant's."""
    if not job.status.claimable_later:
        return None
    with page.look() as tx:
        return queue_reading.explain(tx, page.tenant_id, job.id, lives=lives)


def _expected(tx: Tx, page: Page, view: JobView, explained: Explanation | None) -> list[str]:
    """How long it takes compared with others of its task, or who of those in its way takes longer than usual."""
    if view.job.status is State.RUNNING:
        (one,) = at_work(tx, [view], page.now)
        told = [one.usual.shown() if one.usual is not None else None, one.compared]
        words = "; ".join(text for text in told if text is not None)
        return [f"{words[0].upper()}{words[1:]}."] if words else []
    if explained is None or not is_overdue(explained.start_estimate, explained.blockers, page.now):
        return []
    text = behind_late(explained.blockers, late_jobs(tx, page.tenant_id, page.now))
    return [f"It starts {text}."] if text is not None else []


def _not_yours(page: Page, job: Job) -> str | None:
    """Why this visitor may not give it other params, whatever its state."""
    try:
        check_new_params(page.visitor, [job.task])
    except Refused as error:
        return str(error)
    return None


def _lines_asked(page: Page) -> int:
    asked = page.asked.given("lines")
    return LINES if asked is None else min(MOST_LINES, whole(asked, field="lines", least=1))


def _address(page: Page) -> str:
    url = page.request.url
    return f"{url.scheme}://{url.netloc}{page.root}"


# --- a new one ----------------------------------------------------------------------------------------------------


@pages.get("/jobs/new", Role.OPERATOR)
def fresh(page: Page) -> Response:
    """Empty, or filled in like a job that exists, or for a task that was chosen."""
    given = {name: page.asked.get(name) for name in _FIELDS}
    like = page.asked.given("like")
    if like is not None:
        with page.read() as tx:
            given |= _like(reading.view(tx, page.tenant_id, whole(like, field="like", least=1)))
    return _editor(page, given)


def _like(view: JobView) -> dict[str, str]:
    job = view.job
    pretty = json.dumps(json.loads(job.params), indent=2, ensure_ascii=False)
    return {
        "task": job.task,
        "params": pretty,
        "priority": str(job.priority),
        "target": view.target or "",
        "key": job.key or "",
    }


@pages.post("/jobs/new")
def create(page: Page) -> Response:
    try:
        made = make_once(page, lambda: _wishes(page))
    except (BadInput, WrongState, Refused) as error:
        kept = {name: page.form.get(name) for name in _FIELDS}
        return _editor(page, kept, error)
    text = f"Job {made.id} was made{made.already}."
    if not made.created:
        text = f"Nothing was made: the key is taken by job {made.id}."
    return page.done(text, to=page.address(f"/jobs/{made.id}"))


class Made(NamedTuple):
    """The job that a form made; `already` when the form was sent before."""

    id: int
    created: bool
    already: str


def make_once(page: Page, wishes: Callable[[], Mapping[str, Any]]) -> Made:
    """What was made before is not judged again by what has changed since."""
    client = once.keyed(page)
    kept = client.recall()
    if kept is None:
        job_id, created = client.enqueue(new_job(page, client, wishes()))
    else:
        # Of the one job that was made: its number, and False when there was none to make.
        job_id, created = kept[0][0], False not in kept[0][1:]
    return Made(int(job_id), created, once.already(client))


def _wishes(page: Page) -> dict[str, Any]:
    task = page.form.given("task")
    if task is None:
        raise BadInput("task: say which one", field="task")
    params = from_json(page.form.given("params") or "{}", field="params")
    if not isinstance(params, dict):
        raise BadInput('params must be a JSON object, like {"topic": "fog"}', field="params")
    given = {"task": task, "params": params, "priority": number(page.form, "priority")}
    given |= {name: page.form.given(name) for name in ("delay", "target", "key")}
    return {name: value for name, value in given.items() if value is not None}


def number(form: Form, name: str) -> int | None:
    text = form.given(name)
    return None if text is None else whole(text, field=name)


def _editor(page: Page, given: Mapping[str, str], error: HeadwayError | None = None) -> Response:
    tasks = offered_tasks(page)
    chosen = next((one for one in tasks if one["task"] == given["task"]), None)
    if chosen is not None and not given["params"]:
        given = {**given, "params": _skeleton(chosen)}
    return page.render(
        "job_new.html",
        status=200 if error is None else status_of(error),
        given=given,
        tasks=tasks,
        once=page.once,
        plain=plain_type,
        problem=None if error is None else str(error),
        field=None if error is None or error.field is None else error.field.split(".")[0].split("[")[0],
    )


def plain_type(text: str) -> str:
    """A type without the rule that checks it: the rule speaks when it is broken."""
    return _RULE.sub(r"\1", text)


def _skeleton(task: Mapping[str, Any]) -> str:
    """Its params, to be filled in."""
    named = {one["name"]: one["default"] for one in task["params"] or ()}
    return json.dumps(named, indent=2, ensure_ascii=False)

"""The page of a job with its state and actions, and the form for a new job."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.responses import Response

from headway.api.endpoints.jobs import new_job
from headway.api.endpoints.tasks import offered_tasks
from headway.api.http.problems import status_of
from headway.dashboard import form_tokens
from headway.dashboard.expected_durations import at_work, behind_late, late_jobs
from headway.dashboard.job_snippets import Copies, copies
from headway.dashboard.links import linked
from headway.dashboard.page import Form, PageRequest, Pages
from headway.engine.client.authority import check_new_params, of_caller
from headway.engine.client.limits import lives
from headway.errors import BadInput, HeadwayError, Refused, WrongState
from headway.model.access.permissions import Role
from headway.model.explain.blockers import Explanation
from headway.model.explain.durations import is_overdue
from headway.model.jobs.available_actions import VERBS, closed_fields, needs_budget, prospects
from headway.model.jobs.job import Actor, JobRecord, Options
from headway.model.jobs.states import State
from headway.model.values.json import from_json
from headway.model.values.names import whole
from headway.model.values.times import instant_text
from headway.model.webhooks.address import origin_of
from headway.store.db import Tx
from headway.store.jobs import available_actions
from headway.store.jobs import views as job_views
from headway.store.jobs.views import JobView
from headway.store.queue import queue_views
from headway.text.job_next import becomes
from headway.text.job_timeline import spells, timeline

pages = Pages("jobs")
EMPTY = Form(())
_RULE = re.compile(r"Annotated\[(.*?), Rule\(\w*\)\]")
LINES, MOST_LINES = 200, 10_000
EVENTS = 200
_FIELDS = ("task", "params", "priority", "delay", "target", "key")


@dataclass(frozen=True, slots=True)
class TriedAction:
    """A submitted form and its problem. Without a problem the form was only opened."""

    verb: str = ""
    problem: str | None = None
    place: str | None = None
    form: Form = EMPTY

    def value(self, verb: str, name: str, otherwise: object = "") -> object:
        kept = self.verb == verb and self.problem is not None and name in self.form
        return self.form.get(name) if kept else otherwise

    def wrong(self, verb: str, name: str) -> bool:
        """Returns True if the problem is in this field.

        `params.topic` belongs to `params`.
        """
        if self.verb != verb or self.place is None:
            return False
        return self.place == name or self.place.startswith((f"{name}.", f"{name}["))


# --- one job ------------------------------------------------------------------------------------------------------


@pages.get("/jobs/{job_id:int}")
def show(page: PageRequest, job_id: int) -> Response:
    return shown(page, job_id, TriedAction())


@pages.get("/jobs/{job_id:int}/{verb:str}")
def opened(page: PageRequest, job_id: int, verb: str) -> Response:
    """Shows the job with one of its forms open."""
    if verb not in VERBS:
        raise HTTPException(404)
    return shown(page, job_id, TriedAction(verb))


def refused(page: PageRequest, job_id: int, verb: str, error: HeadwayError) -> Response:
    """Shows the job with the refused form and its values."""
    return shown(page, job_id, TriedAction(verb, str(error), error.field, page.form), status=status_of(error))


def shown(page: PageRequest, job_id: int, tried: TriedAction, status: int = 200) -> Response:
    count, explained = _lines_asked(page), _explained(page, page.client.get(job_id))
    with page.read() as tx:
        view = job_views.view(tx, page.tenant_id, job_id)
        case, chain = available_actions.case(tx, view, now=page.now, explained=explained)
        events = job_views.events(tx, job_id, after=max(0, view.job.version - EVENTS), limit=EVENTS)
        # A live refresh leaves the log alone, which may have 10,000 lines.
        lines = [] if page.live else job_views.last_lines(tx, job_id, count)
        files = job_views.artifacts(tx, job_id)
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
        options=_options(page, view.job),
        copies=None if page.live else _copies(page, view),
        maker=Actor.parse(view.job.created_by).shown,
        linked=lambda text: linked(text, page.address),
        instant_text=instant_text,
        tried=tried,
    )


def _options(page: PageRequest, job: JobRecord) -> Options:
    """Returns the options of a job; viewers see the address of its webhook without path and query."""
    options = Options.parse(job.options)
    if options.webhook_url is None or page.may("operator"):
        return options
    return replace(options, webhook_url=origin_of(options.webhook_url))


def _copies(page: PageRequest, view: JobView) -> Copies:
    with_token = page.visitor.actor.type == "token"
    full = page.may("operator")
    return copies(view.job, view.target, _address(page), now=page.now, with_token=with_token, full=full)


def _explained(page: PageRequest, job: JobRecord) -> Explanation | None:
    """Explains why a job waits, without row-level security.

    Other tenants' jobs may block it.
    """
    if not job.status.claimable_later:
        return None
    with page.look() as tx:
        return queue_views.explain(tx, page.tenant_id, job.id, lives=lives)


def _expected(tx: Tx, page: PageRequest, view: JobView, explained: Explanation | None) -> list[str]:
    """Compares a running job with others of its task, or names the late job that blocks a waiting one."""
    if view.job.status is State.RUNNING:
        (running,) = at_work(tx, [view], page.now)
        texts = [running.usual.shown() if running.usual is not None else None, running.compared]
        words = "; ".join(text for text in texts if text is not None)
        return [f"{words[0].upper()}{words[1:]}."] if words else []
    if explained is None or not is_overdue(explained.start_estimate, explained.blockers, page.now):
        return []
    text = behind_late(explained.blockers, late_jobs(tx, page.tenant_id, page.now))
    return [f"It starts {text}."] if text is not None else []


def _not_yours(page: PageRequest, job: JobRecord) -> str | None:
    """Returns why this visitor may not change the params, whatever the job's state, or None."""
    try:
        with page.read() as tx:
            check_new_params(of_caller(page.client), tx, job)
    except Refused as error:
        return str(error)
    return None


def _lines_asked(page: PageRequest) -> int:
    asked = page.asked.given("lines")
    return LINES if asked is None else min(MOST_LINES, whole(asked, field="lines", least=1))


def _address(page: PageRequest) -> str:
    url = page.request.url
    return f"{url.scheme}://{url.netloc}{page.root}"


# --- a new job ----------------------------------------------------------------------------------------------------


@pages.get("/jobs/new", Role.OPERATOR)
def fresh(page: PageRequest) -> Response:
    """Shows the form: empty, for a chosen task, or with the values of an existing job."""
    given = {name: page.asked.get(name) for name in _FIELDS}
    like = page.asked.given("like")
    if like is not None:
        with page.read() as tx:
            given |= _like(job_views.view(tx, page.tenant_id, whole(like, field="like", least=1)))
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
def create(page: PageRequest) -> Response:
    try:
        made = make_once(page, lambda: _form_options(page))
    except (BadInput, WrongState, Refused) as error:
        kept = {name: page.form.get(name) for name in _FIELDS}
        return _editor(page, kept, error)
    text = f"Job {made.id} was created{made.already}."
    if not made.created:
        text = f"No job was created: the key is taken by job {made.id}."
    return page.done(text, to=page.address(f"/jobs/{made.id}"))


class Made(NamedTuple):
    """The job that a form created.

    `already` is a text if an earlier submission created it.
    """

    id: int
    created: bool
    already: str


def make_once(page: PageRequest, read_options: Callable[[], Mapping[str, Any]]) -> Made:
    """Creates a job once per form; a repeated form is not checked again."""
    client = form_tokens.keyed(page)
    kept = client.recall()
    if kept is None:
        job_id, created = client.enqueue(new_job(page, client, read_options()))
    else:
        # The stored answer has the job's id, and False if the key was taken.
        job_id, created = kept[0][0], False not in kept[0][1:]
    return Made(int(job_id), created, form_tokens.already(client))


def _form_options(page: PageRequest) -> dict[str, Any]:
    task = page.form.given("task")
    if task is None:
        raise BadInput("task: no task was given", hint="choose one of the known tasks", field="task")
    params = from_json(page.form.given("params") or "{}", field="params")
    if not isinstance(params, dict):
        raise BadInput('params must be a JSON object, like {"topic": "fog"}', field="params")
    given = {"task": task, "params": params, "priority": number(page.form, "priority")}
    given |= {name: page.form.given(name) for name in ("delay", "target", "key")}
    return {name: value for name, value in given.items() if value is not None}


def number(form: Form, name: str) -> int | None:
    text = form.given(name)
    return None if text is None else whole(text, field=name)


def _editor(page: PageRequest, given: Mapping[str, str], error: HeadwayError | None = None) -> Response:
    tasks = offered_tasks(page)
    chosen = next((task for task in tasks if task["task"] == given["task"]), None)
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
    """Removes the validation rule from a type.

    Its message appears when it is violated.
    """
    return _RULE.sub(r"\1", text)


def _skeleton(task: Mapping[str, Any]) -> str:
    """Returns the task's params with their defaults as JSON."""
    named = {param["name"]: param["default"] for param in task["params"] or ()}
    return json.dumps(named, indent=2, ensure_ascii=False)

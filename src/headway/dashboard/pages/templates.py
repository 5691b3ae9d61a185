"""Job templates: the list, the page of one, creating a job from it, archiving it."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from headway.api.http.problems import status_of
from headway.dashboard.form_fields import params_of
from headway.dashboard.page import PageRequest, Pages
from headway.dashboard.pages.job import make_once, plain_type
from headway.dashboard.pages.schedule_form import moment
from headway.dashboard.pages.template_editor import seen_version
from headway.engine.client.authority import check_task, of_caller
from headway.errors import BadInput, HeadwayError, Refused, WrongState
from headway.model.access.authority import ADMIN_TASKS
from headway.model.access.permissions import Role
from headway.model.jobs.job import Actor
from headway.model.templates import OPTIONS, Template
from headway.model.values.json import from_json, step
from headway.model.values.names import whole
from headway.store import templates
from headway.store.jobs import views as job_views
from headway.store.paging import make_cursor, read_cursor

pages = Pages("templates")
LISTED, HISTORY = 50, 20
_OPEN = "open-"


@dataclass(frozen=True, slots=True)
class TemplateJobForm:
    """One job to be made of a template, as it stands in the form."""

    params: str = ""
    priority: str = ""
    not_before: str = ""
    key: str = ""
    hold: str = ""
    opened: Mapping[str, str] | None = None

    def given(self, page: PageRequest, template: Template) -> dict[str, Any]:
        texts = _texts(page, template)
        found: dict[str, Any] = {"template_id": template.id, "params": self._params(texts)}
        if self.priority:
            found["priority"] = whole(self.priority, field="priority", most=100)
        if self.not_before:
            found["not_before"] = moment(self.not_before, page.preferences.zone, field="not_before")
        if self.key:
            found["key"] = self.key
        return {**found, "hold": True} if self.hold else found

    def _params(self, texts: Collection[str]) -> dict[str, object]:
        if self.opened is not None:
            return {name: text if name in texts else _value(name, text) for name, text in self.opened.items() if text}
        return params_of(self.params)


def _value(name: str, text: str) -> object:
    """A number, true, a list … as JSON; anything else is text."""
    try:
        return from_json(text, field=f"params{step(name)}")
    except BadInput as error:
        if not str(error.facts["problem"]).startswith("is not JSON"):
            raise  # JSON that cannot be kept: to take it as text would be a guess
        return text


def _texts(page: PageRequest, one: Template) -> set[str]:
    """Returns the params that are always text; a version 1.10 is not a number."""
    spec = page.client.registry.specs.get(one.task)
    text_params = [] if spec is None else [each.name for each in spec.signature.parameters if _is_text(each.annotation)]
    return {*text_params, *(name for name, value in one.params.items() if isinstance(value, str))}


def _is_text(annotation: object) -> bool:
    """Returns True if the annotation is written as `str`, optionally with None.

    Annotations are mostly text and may name things that do not exist at run time.
    """
    written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return {part.strip() for part in plain_type(written).split("|")} - {"None"} == {"str"}


# --- looking ------------------------------------------------------------------------------------------------------


@pages.get("/templates")
def ls(page: PageRequest) -> Response:
    cursor, archived = page.asked.given("cursor"), bool(page.asked.get("archived"))
    after = 0 if cursor is None else read_cursor(cursor)
    with page.read() as tx:
        found = templates.page(tx, page.tenant_id, after=after, archived=archived, limit=LISTED + 1)
    more = make_cursor(found[LISTED - 1].id) if len(found) > LISTED else None
    return page.render("templates.html", found=found[:LISTED], next=more, archived=archived)


# A form that came back stands at the address that it was sent to: there, too, the page can be asked for again.
@pages.get("/templates/{template_id:int}")
@pages.get("/templates/{template_id:int}/job")
def show(page: PageRequest, template_id: int) -> Response:
    return _shown(page, page.client.templates.get(template_id), TemplateJobForm())


def _shown(page: PageRequest, one: Template, job_form: TemplateJobForm, error: HeadwayError | None = None) -> Response:
    with page.read() as tx:
        events = job_views.history(tx, "template", one.id, after=max(0, one.version - HISTORY))
    return page.render(
        "template.html",
        status=200 if error is None else status_of(error),
        one=one,
        options={name: one.fields[name] for name in OPTIONS if name in one.fields},
        opened=_opened(page, one),
        job_form=job_form,
        once=page.once,
        error=error,
        wrong=(error.field or "").split(".")[0].split("[")[0] if error else "",
        events=[(event, Actor.parse(event.actor).shown) for event in reversed(events)],
        not_yours=_not_yours(page, one),
    )


def _opened(page: PageRequest, one: Template) -> tuple[str, ...] | None:
    """The only params that this visitor may give; None for all of them."""
    closed = one.task in ADMIN_TASKS and not of_caller(page.client).may(one.task)
    return one.open_params if closed else None


def _not_yours(page: PageRequest, one: Template) -> str | None:
    try:
        check_task(page.client, one.task)
    except Refused as error:
        return str(error)
    return None


# --- making and putting away --------------------------------------------------------------------------------------


@pages.post("/templates/{template_id:int}/job", Role.OPERATOR)
def make(page: PageRequest, template_id: int) -> Response:
    one = page.client.templates.get(template_id)
    form, opened = page.form, _opened(page, one)
    filled = None if opened is None else {name: form.get(f"{_OPEN}{name}") for name in opened}
    names = ("params", "priority", "not_before", "key", "hold")
    job_form = TemplateJobForm(**{name: form.get(name) for name in names}, opened=filled)
    try:
        made = make_once(page, lambda: job_form.given(page, one))
    except (BadInput, WrongState, Refused) as error:
        return _shown(page, one, job_form, error)
    text = f"Job {made.id} was created from template {one.name}{made.already}."
    if not made.created:
        text = f"Job {made.id} has that key already."
    return page.done(text, to=page.address(f"/jobs/{made.id}"))


@pages.post("/templates/{template_id:int}/archive", Role.OPERATOR)
def archive(page: PageRequest, template_id: int) -> Response:
    one = page.client.templates.get(template_id)
    check_task(page.client, one.task)
    page.client.templates.archive(one.id, if_version=seen_version(page, one))
    return page.done(f"Template {one.name} is archived: it creates no more jobs, and its name is free again.")

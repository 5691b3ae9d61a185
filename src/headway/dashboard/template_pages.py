"""Job templates: stored defaults for a task. The list, one of them, a job made of it, and putting it away. The editor
has a module of its own."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from headway.api.problems import status_of
from headway.dashboard.fields import params_of
from headway.dashboard.jobs import make_once, plain_type
from headway.dashboard.pages import Page, Pages
from headway.dashboard.schedule_form import moment
from headway.dashboard.template_editor import seen_version
from headway.errors import BadInput, HeadwayError, Refused, WrongState
from headway.model.access import ADMIN_TASKS, Role, check_task
from headway.model.job import Actor
from headway.model.template import WISHES, Template
from headway.model.values import from_json, step, whole
from headway.store import reading, templates
from headway.store.pages import make_cursor, read_cursor

pages = Pages("templates")
LISTED, HISTORY = 50, 20
_OPEN = "open-"


@dataclass(frozen=True, slots=True)
class Wish:
    """One job to be made of a template, as it stands in the form."""

    params: str = ""
    priority: str = ""
    not_before: str = ""
    key: str = ""
    hold: str = ""
    opened: Mapping[str, str] | None = None

    def given(self, page: Page, template: Template) -> dict[str, Any]:
        texts = _texts(page, template)
        found: dict[str, Any] = {"template_id": template.id, "params": self._params(texts)}
        if self.priority:
            found["priority"] = whole(self.priority, field="priority", most=100)
        if self.not_before:
            found["not_before"] = moment(self.not_before, page.taste.zone, field="not_before")
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


def _texts(page: Page, one: Template) -> set[str]:
    """The params that are text whatever they look like: a version 1.10 is not a number."""
    spec = page.client.registry.specs.get(one.task)
    told = [] if spec is None else [each.name for each in spec.signature.parameters if _is_text(each.annotation)]
    return {*told, *(name for name, value in one.params.items() if isinstance(value, str))}


def _is_text(annotation: object) -> bool:
    """By how it is written: in most modules annotations are text, and may name what is not there at run time."""
    written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return {part.strip() for part in plain_type(written).split("|")} - {"None"} == {"str"}


# --- looking ------------------------------------------------------------------------------------------------------


@pages.get("/templates")
def ls(page: Page) -> Response:
    cursor, archived = page.asked.given("cursor"), bool(page.asked.get("archived"))
    after = 0 if cursor is None else read_cursor(cursor)
    with page.read() as tx:
        found = templates.page(tx, page.tenant_id, after=after, archived=archived, limit=LISTED + 1)
    more = make_cursor(found[LISTED - 1].id) if len(found) > LISTED else None
    return page.render("templates.html", found=found[:LISTED], next=more, archived=archived)


# A form that came back stands at the address that it was sent to: there, too, the page can be asked for again.
@pages.get("/templates/{template_id:int}")
@pages.get("/templates/{template_id:int}/job")
def show(page: Page, template_id: int) -> Response:
    return _shown(page, page.client.templates.get(template_id), Wish())


def _shown(page: Page, one: Template, wish: Wish, error: HeadwayError | None = None) -> Response:
    with page.read() as tx:
        events = reading.history(tx, "template", one.id, after=max(0, one.version - HISTORY))
    return page.render(
        "template.html",
        status=200 if error is None else status_of(error),
        one=one,
        wishes={name: one.fields[name] for name in WISHES if name in one.fields},
        opened=_opened(page, one),
        wish=wish,
        once=page.once,
        error=error,
        wrong=(error.field or "").split(".")[0].split("[")[0] if error else "",
        told=[(event, Actor.parse(event.actor).shown) for event in reversed(events)],
        not_yours=_not_yours(page, one),
    )


def _opened(page: Page, one: Template) -> tuple[str, ...] | None:
    """The only params that this visitor may give; None for all of them."""
    closed = one.task in ADMIN_TASKS and not page.visitor.role.may(Role.ADMIN)
    return one.open_params if closed else None


def _not_yours(page: Page, one: Template) -> str | None:
    try:
        check_task(page.visitor, one.task)
    except Refused as error:
        return str(error)
    return None


# --- making and putting away --------------------------------------------------------------------------------------


@pages.post("/templates/{template_id:int}/job", Role.OPERATOR)
def make(page: Page, template_id: int) -> Response:
    one = page.client.templates.get(template_id)
    form, opened = page.form, _opened(page, one)
    filled = None if opened is None else {name: form.get(f"{_OPEN}{name}") for name in opened}
    names = ("params", "priority", "not_before", "key", "hold")
    wish = Wish(**{name: form.get(name) for name in names}, opened=filled)
    try:
        made = make_once(page, lambda: wish.given(page, one))
    except (BadInput, WrongState, Refused) as error:
        return _shown(page, one, wish, error)
    text = f"Job {made.id} was made of template {one.name}{made.already}."
    if not made.created:
        text = f"Job {made.id} has that key already."
    return page.done(text, to=page.address(f"/jobs/{made.id}"))


@pages.post("/templates/{template_id:int}/archive", Role.OPERATOR)
def archive(page: Page, template_id: int) -> Response:
    one = page.client.templates.get(template_id)
    check_task(page.visitor, one.task)
    page.client.templates.archive(one.id, if_version=seen_version(page, one))
    return page.done(f"Template {one.name} is archived: no more jobs are made of it, and its name is free again.")

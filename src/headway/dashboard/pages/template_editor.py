"""The form that creates and changes job templates."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from headway.api.endpoints.tasks import offered_tasks
from headway.api.http.problems import status_of
from headway.dashboard import form_tokens
from headway.dashboard.form_fields import duration_of, json_text, names_of, names_text, params_of, retry_of, retry_text
from headway.dashboard.page import Form, PageRequest, Pages
from headway.engine.client.authority import check_task
from headway.engine.client.client import Client
from headway.errors import BadInput, HeadwayError, Refused, WrongState
from headway.model.access.permissions import Role
from headway.model.jobs.job import ON_ERROR, ON_LOST, ON_SHUTDOWN
from headway.model.templates import FIELDS, OPTIONS, Template
from headway.model.values.json import from_json
from headway.model.values.names import whole

pages = Pages("template editor")
# How each field of a template is read from the form, and written into it; the others are text.
_READ: Mapping[str, Callable[[str], object]] = {
    "params": params_of,
    "priority": lambda text: whole(text, field="priority", most=100),
    "resources": lambda text: names_of(text, "resources"),
    "timeout": duration_of,
    "retry_policy": lambda text: retry_of(text, "retry_policy"),
    "budget": lambda text: from_json(text, field="budget"),
    "open_params": lambda text: names_of(text, "open_params"),
}
_WRITE: Mapping[str, Callable[[Any], str]] = {
    "params": json_text,
    "resources": names_text,
    "retry_policy": retry_text,
    "budget": json_text,
    "open_params": names_text,
}
# They are asked for less often: folded until one says something.
FOLDED = (*OPTIONS, "open_params")


@dataclass(frozen=True, slots=True)
class TemplateDraft:
    """A template as it stands in the form."""

    name: str
    task: str
    fields: Mapping[str, str]

    def options(self) -> dict[str, Any]:
        """Every field, as the verbs take it; None for what was left empty."""
        return {name: self._value(name) for name in self.fields}

    def changes(self, one: Template) -> dict[str, Any]:
        """Returns the fields that differ from a template.

        A form sends stripped text, so a field that still has the text it was shown keeps its stored value.
        """
        shown, stored = TemplateDraft.showing(one), one.fields
        named = {"name": (self.name, one.name), "task": (self.task, one.task)}
        found: dict[str, Any] = {name: ours for name, (ours, theirs) in named.items() if ours != _sent_back(theirs)}
        for name, text in self.fields.items():
            if text == _sent_back(shown.fields[name]):
                continue
            value = self._value(name)
            if json.dumps(value) != json.dumps(stored.get(name)):  # 1 and true are the same to ==
                found[name] = value
        return found

    def _value(self, name: str) -> object:
        text = self.fields[name]
        return _READ.get(name, str)(text) if text else None

    @staticmethod
    def of(form: Form) -> TemplateDraft:
        texts = {name: form.get(name).replace("\r\n", "\n") for name in FIELDS}
        return TemplateDraft(form.get("name"), form.get("task"), texts)

    @staticmethod
    def showing(one: Template) -> TemplateDraft:
        stored = one.fields
        texts = {name: _WRITE.get(name, str)(stored[name]) if name in stored else "" for name in FIELDS}
        return TemplateDraft(one.name, one.task, texts)


def _sent_back(text: str) -> str:
    """Returns a text as a browser sends it back."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


# --- making -------------------------------------------------------------------------------------------------------


@pages.get("/templates/new", Role.OPERATOR)
def new(page: PageRequest) -> Response:
    """Empty, or with what another one says."""
    copied = page.asked.given("copy")
    if copied is None:
        return _editor(page, TemplateDraft("", page.asked.get("task"), dict.fromkeys(FIELDS, "")))
    draft = TemplateDraft.showing(page.client.templates.get(whole(copied, field="copy", least=1)))
    return _editor(page, TemplateDraft(f"copy of {draft.name}"[:200], draft.task, draft.fields))


@pages.post("/templates/new", Role.OPERATOR)
def create(page: PageRequest) -> Response:
    draft, client = TemplateDraft.of(page.form), form_tokens.keyed(page)
    try:
        made = _made(page, client, draft)
    except (BadInput, WrongState, Refused) as error:
        return _editor(page, draft, error=error)
    return page.done(
        f"Template {made.name} was made{form_tokens.already(client)}.", to=page.address(f"/templates/{made.id}")
    )


def _made(page: PageRequest, client: Client, draft: TemplateDraft) -> Template:
    if (number := form_tokens.made_before(client)) is not None:
        return page.client.templates.get(number)
    check_task(client, draft.task)
    return client.templates.create(draft.name, draft.task, **draft.options())


# --- changing -----------------------------------------------------------------------------------------------------


@pages.get("/templates/{template_id:int}/edit", Role.OPERATOR)
def edit(page: PageRequest, template_id: int) -> Response:
    one = _ours(page, template_id)
    return _editor(page, TemplateDraft.showing(one), one)


@pages.post("/templates/{template_id:int}/edit", Role.OPERATOR)
def change(page: PageRequest, template_id: int) -> Response:
    one, draft = _ours(page, template_id), TemplateDraft.of(page.form)
    try:
        edited = _edited(page, draft, one)
    except (BadInput, WrongState, Refused) as error:
        return _editor(page, draft, one, error=error)
    message = f"Template {edited.name} was changed." if edited.version != one.version else "Nothing was changed."
    return page.done(message, to=page.address(f"/templates/{one.id}"))


def _edited(page: PageRequest, draft: TemplateDraft, one: Template) -> Template:
    """It says what the form says, and nothing else any more.

    The rights were judged by the version that is named.
    """
    version = seen_version(page, one)
    check_task(page.client, draft.task)
    for name in ("name", "task"):
        if not getattr(draft, name):
            raise BadInput(f"{name}: it needs one", field=name)
    changes = draft.changes(one)
    return page.client.templates.edit(one.id, if_version=version, **changes) if changes else one


def _ours(page: PageRequest, template_id: int) -> Template:
    """One that can be changed, by this visitor."""
    one = page.client.templates.get(template_id)
    check_task(page.client, one.task)
    if one.archived_at is not None:
        text = f"template {one.name!r} is archived and cannot be changed: create a copy with Copy"
        raise WrongState(text, code="template_archived", status="archived")
    return one


def seen_version(page: PageRequest, one: Template) -> int:
    """The version that the visitor looked at."""
    if page.form.get("version") != str(one.version):
        text = f"template {one.name!r} has changed since this page was loaded: reload the page, then change it"
        raise WrongState(text, code="version_mismatch", version=one.version)
    return one.version


# --- the page -----------------------------------------------------------------------------------------------------


def _editor(
    page: PageRequest, draft: TemplateDraft, one: Template | None = None, *, error: HeadwayError | None = None
) -> Response:
    wrong = (error.field or "").split(".")[0].split("[")[0] if error is not None else ""
    return page.render(
        "template_edit.html",
        status=200 if error is None else status_of(error),
        draft=draft,
        one=one,
        # Saving over a newer version takes a separate button.
        seen=page.form.get("version") or (one.version if one else ""),
        stale=error is not None and error.code == "version_mismatch",
        error=error,
        wrong=wrong,
        folded=wrong in FOLDED or any(draft.fields[name] for name in FOLDED),
        tasks=[task["task"] for task in offered_tasks(page)],
        choices={"on_lost": ON_LOST, "on_error": ON_ERROR, "on_shutdown": ON_SHUTDOWN},
    )

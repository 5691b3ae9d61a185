"""The editor of schedules: creates and changes them, and previews their times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from headway.api.endpoints.tasks import offered_tasks
from headway.api.http.problems import status_of
from headway.api.schemas.schedules import in_words
from headway.dashboard import form_tokens
from headway.dashboard.page import PageRequest, Pages
from headway.dashboard.pages.schedule_form import FOLDED, ScheduleDraft, spot
from headway.dashboard.pages.schedules import AHEAD, brief, clock, seen_version
from headway.engine.client.client import Client
from headway.engine.client.schedules import Preview, upcoming
from headway.errors import BadInput, HeadwayError, NotFound, Refused, WrongState
from headway.model.access.permissions import Role
from headway.model.schedules.definition import CATCH_UPS, FIELDS, OVERLAPS, Definition
from headway.model.schedules.schedule import Schedule, anchor_of
from headway.model.schedules.timezones import zone_names
from headway.model.values.names import whole
from headway.text import schedules

pages = Pages("schedule editor")
_TEMPLATES = 200


@dataclass(frozen=True, slots=True)
class DraftPreview:
    """The preview of a draft: a sentence and the next times, or the problem."""

    sentence: str = ""
    zone: str = "UTC"
    times: tuple[Preview, ...] = ()
    problem: str | None = None


# --- making -------------------------------------------------------------------------------------------------------


@pages.get("/schedules/new", Role.OPERATOR)
def new(page: PageRequest) -> Response:
    """Empty, or with what another one says."""
    copied = page.asked.given("copy")
    if copied is None:
        return _editor(page, ScheduleDraft.new(page.preferences.zone))
    draft = ScheduleDraft.showing(page.client.schedules.get(whole(copied, field="copy", least=1)))
    return _editor(page, ScheduleDraft({**draft.fields, "name": f"copy of {draft.name}"[:200]}, draft.steps))


@pages.post("/schedules/new", Role.OPERATOR)
def create(page: PageRequest) -> Response:
    draft = ScheduleDraft.of(page.form)
    if (arranged := draft.arranged(page.form)) is not None:
        return _editor(page, arranged)
    client = form_tokens.keyed(page)
    try:
        made = _made(page, client, draft)
    except (BadInput, WrongState, Refused) as error:
        return _editor(page, draft, error=error)
    return page.done(
        f"Schedule {made.name} was made{form_tokens.already(client)}.", to=page.address(f"/schedules/{made.id}")
    )


def _made(page: PageRequest, client: Client, draft: ScheduleDraft) -> Schedule:
    if (number := form_tokens.made_before(client)) is not None:
        return page.client.schedules.get(number)
    requested = Definition.parse(draft.definition())
    return client.schedules.create(draft.name, requested.facts(), enabled=bool(draft.fields["enabled"]))


# --- changing -----------------------------------------------------------------------------------------------------


@pages.get("/schedules/{schedule_id:int}/edit", Role.OPERATOR)
def edit(page: PageRequest, schedule_id: int) -> Response:
    one = page.client.schedules.get(schedule_id)
    return _editor(page, ScheduleDraft.showing(one), one)


@pages.post("/schedules/{schedule_id:int}/edit", Role.OPERATOR)
def change(page: PageRequest, schedule_id: int) -> Response:
    one = page.client.schedules.get(schedule_id)
    draft = ScheduleDraft.of(page.form)
    if (arranged := draft.arranged(page.form)) is not None:
        return _editor(page, arranged, one)
    try:
        edited = _edited(page, draft, one)
    except (BadInput, WrongState, Refused) as error:
        return _editor(page, draft, one, error=error)
    message = f"Schedule {edited.name} was changed." if edited.version != one.version else "Nothing was changed."
    return page.done(message, to=page.address(f"/schedules/{one.id}"))


def _edited(page: PageRequest, draft: ScheduleDraft, one: Schedule) -> Schedule:
    """Replaces the definition of a schedule with that of the form."""
    version = seen_version(page, one)
    requested = Definition.parse(draft.definition())
    changes: dict[str, Any] = {**dict.fromkeys(FIELDS), **requested.facts()}
    if draft.name != one.name.strip():  # a form has no blanks around a name, and leaves those that are there alone
        changes["name"] = draft.name
        if not draft.name:
            raise BadInput("name: give the schedule a name", field="name")
    return page.client.schedules.edit(one.id, changes, version, enabled=bool(draft.fields["enabled"]))


# --- looking ahead ------------------------------------------------------------------------------------------------


@pages.get("/schedules/preview")
def preview(page: PageRequest) -> Response:
    """The part of the editor alone, for what is filled in so far.

    `of` is the schedule that it is about.
    """
    of = page.asked.given("of")
    one = None if of is None else _known(page, whole(of, field="of", least=1))
    return page.render(
        "schedule_preview.html", ahead=_ahead(page, ScheduleDraft.of(page.asked), one), clock=clock, brief=brief
    )


def _known(page: PageRequest, schedule_id: int) -> Schedule | None:
    try:
        return page.client.schedules.get(schedule_id)
    except NotFound:
        return None


def _ahead(page: PageRequest, draft: ScheduleDraft, one: Schedule | None) -> DraftPreview:
    try:
        made = Definition.parse({**draft.timing(), "steps": [{"task": "preview"}]})
    except BadInput as error:
        return DraftPreview(problem=str(error))
    anchor = anchor_of(made, page.now if one is None else one.created_at)
    return DraftPreview(in_words(made), made.timezone, tuple(upcoming(made, anchor, page.now, AHEAD)))


# --- the page -----------------------------------------------------------------------------------------------------


def _editor(
    page: PageRequest, draft: ScheduleDraft, one: Schedule | None = None, *, error: HeadwayError | None = None
) -> Response:
    stale = error is not None and error.code == "version_mismatch"
    return page.render(
        "schedule_edit.html",
        status=200 if error is None else status_of(error),
        draft=draft,
        one=one,
        # Saving over a newer version takes a separate button.
        seen=page.form.get("version") or (one.version if one else ""),
        stale=stale,
        error=error,
        wrong=spot(error),
        ahead=_ahead(page, draft, one),
        clock=clock,
        brief=brief,
        **_choices(page),
    )


def _choices(page: PageRequest) -> Mapping[str, object]:
    return {
        "zones": zone_names(),
        "tasks": [task["task"] for task in offered_tasks(page)],
        "templates": [one.name for one in page.client.templates.list(limit=_TEMPLATES)],
        "overlaps": OVERLAPS,
        "catch_ups": CATCH_UPS,
        "policies": list(schedules.FAILURE_WORDS),
        "folded": FOLDED,
        "says": schedules,
    }

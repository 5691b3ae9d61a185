"""The editor of schedules: making one, changing one, and the times that what is being written would fire at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from headway.api.known_tasks import offered_tasks
from headway.api.problems import status_of
from headway.api.schedules import may_define
from headway.api.wire.plans import in_words
from headway.dashboard import once
from headway.dashboard.pages import Page, Pages
from headway.dashboard.schedule_form import FOLDED, Draft, spot
from headway.dashboard.schedules import AHEAD, brief, clock, seen_version
from headway.engine.client import Client
from headway.engine.schedules import Preview, upcoming
from headway.errors import BadInput, HeadwayError, NotFound, Refused, WrongState
from headway.model import schedule_words
from headway.model.access import Role
from headway.model.schedule import CATCH_UPS, FIELDS, OVERLAPS, Definition, Schedule, anchor_of
from headway.model.values import whole
from headway.model.zones import zone_names

pages = Pages("schedule editor")
_TEMPLATES = 200


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a draft would do: a sentence and the next times, or why there are none."""

    sentence: str = ""
    zone: str = "UTC"
    times: tuple[Preview, ...] = ()
    problem: str | None = None


# --- making -------------------------------------------------------------------------------------------------------


@pages.get("/schedules/new", Role.OPERATOR)
def new(page: Page) -> Response:
    """Empty, or with what another one says."""
    copied = page.asked.given("copy")
    if copied is None:
        return _editor(page, Draft.new(page.taste.zone))
    draft = Draft.showing(page.client.schedules.get(whole(copied, field="copy", least=1)))
    return _editor(page, Draft({**draft.fields, "name": f"copy of {draft.name}"[:200]}, draft.steps))


@pages.post("/schedules/new", Role.OPERATOR)
def create(page: Page) -> Response:
    draft = Draft.of(page.form)
    if (arranged := draft.arranged(page.form)) is not None:
        return _editor(page, arranged)
    client = once.keyed(page)
    try:
        made = _made(page, client, draft)
    except (BadInput, WrongState, Refused) as error:
        return _editor(page, draft, error=error)
    return page.done(f"Schedule {made.name} was made{once.already(client)}.", to=page.address(f"/schedules/{made.id}"))


def _made(page: Page, client: Client, draft: Draft) -> Schedule:
    if (number := once.made_before(client)) is not None:
        return page.client.schedules.get(number)
    wished = Definition.parse(draft.definition())
    may_define(page, wished)
    return client.schedules.create(draft.name, wished.facts(), enabled=bool(draft.fields["enabled"]))


# --- changing -----------------------------------------------------------------------------------------------------


@pages.get("/schedules/{schedule_id:int}/edit", Role.OPERATOR)
def edit(page: Page, schedule_id: int) -> Response:
    one = page.client.schedules.get(schedule_id)
    return _editor(page, Draft.showing(one), one)


@pages.post("/schedules/{schedule_id:int}/edit", Role.OPERATOR)
def change(page: Page, schedule_id: int) -> Response:
    one = page.client.schedules.get(schedule_id)
    draft = Draft.of(page.form)
    if (arranged := draft.arranged(page.form)) is not None:
        return _editor(page, arranged, one)
    try:
        edited = _edited(page, draft, one)
    except (BadInput, WrongState, Refused) as error:
        return _editor(page, draft, one, error=error)
    said = f"Schedule {edited.name} was changed." if edited.version != one.version else "Nothing was changed."
    return page.done(said, to=page.address(f"/schedules/{one.id}"))


def _edited(page: Page, draft: Draft, one: Schedule) -> Schedule:
    """It says what the form says, and nothing else any more."""
    version = seen_version(page, one)
    may_define(page, one.parsed)
    wished = Definition.parse(draft.definition())
    may_define(page, wished)
    changes: dict[str, Any] = {**dict.fromkeys(FIELDS), **wished.facts()}
    if draft.name != one.name.strip():  # a form has no blanks around a name, and leaves those that are there alone
        changes["name"] = draft.name
        if not draft.name:
            raise BadInput("name: say what it is to be called", field="name")
    return page.client.schedules.edit(one.id, changes, version, enabled=bool(draft.fields["enabled"]))


# --- looking ahead ------------------------------------------------------------------------------------------------


@pages.get("/schedules/preview")
def preview(page: Page) -> Response:
    """The part of the editor alone, for what is filled in so far; `of` is the schedule that it is about."""
    of = page.asked.given("of")
    one = None if of is None else _known(page, whole(of, field="of", least=1))
    return page.render("schedule_preview.html", ahead=_ahead(page, Draft.of(page.asked), one), clock=clock, brief=brief)


def _known(page: Page, schedule_id: int) -> Schedule | None:
    try:
        return page.client.schedules.get(schedule_id)
    except NotFound:
        return None


def _ahead(page: Page, draft: Draft, one: Schedule | None) -> Ahead:
    try:
        made = Definition.parse({**draft.timing(), "steps": [{"task": "preview"}]})
    except BadInput as error:
        return Ahead(problem=str(error))
    anchor = anchor_of(made, page.now if one is None else one.created_at)
    return Ahead(in_words(made), made.timezone, tuple(upcoming(made, anchor, page.now, AHEAD)))


# --- the page -----------------------------------------------------------------------------------------------------


def _editor(page: Page, draft: Draft, one: Schedule | None = None, *, error: HeadwayError | None = None) -> Response:
    stale = error is not None and error.code == "version_mismatch"
    return page.render(
        "schedule_edit.html",
        status=200 if error is None else status_of(error),
        draft=draft,
        one=one,
        # Whoever saves over a newer version says so with its own button.
        seen=page.form.get("version") or (one.version if one else ""),
        stale=stale,
        error=error,
        wrong=spot(error),
        ahead=_ahead(page, draft, one),
        clock=clock,
        brief=brief,
        **_choices(page),
    )


def _choices(page: Page) -> Mapping[str, object]:
    return {
        "zones": zone_names(),
        "tasks": [task["task"] for task in offered_tasks(page)],
        "templates": [one.name for one in page.client.templates.list(limit=_TEMPLATES)],
        "overlaps": OVERLAPS,
        "catch_ups": CATCH_UPS,
        "policies": list(schedule_words.FAILURE_WORDS),
        "folded": FOLDED,
        "says": schedule_words,
    }

"""Audit: what was changed, when and by which actor."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response

from headway.api.endpoints.audit import audited
from headway.dashboard.page import PageRequest, Pages
from headway.errors import BadInput
from headway.model.audit import THINGS, AuditFilter
from headway.model.event import Event
from headway.store.paging import Page
from headway.text.events import AuditText, audit_text

pages = Pages("audit")
LISTED = 50
FIELDS = ("actor", "thing", "thing_id", "kind", "since", "until")
# The things with a page of their own at their number.
_ADDRESSES = {
    "job": "/jobs",
    "group": "/groups",
    "execution": "/executions",
    "schedule": "/schedules",
    "template": "/templates",
    "webhook": "/webhooks",
    "delivery": "/deliveries",
}


@dataclass(frozen=True, slots=True)
class AuditLine:
    """An event in words, and the address of the page of its thing."""

    text: AuditText
    address: str | None


@pages.get("/audit")
def show(page: PageRequest) -> Response:
    asked = {name: page.asked.get(name) for name in FIELDS}
    problem = None
    try:
        found = audited(page, _wanted(asked), LISTED, page.asked.get("cursor") or None)
    except BadInput as error:
        found, problem = Page([]), error
    lines = [_line(event) for event in found.items]
    return page.render("audit.html", asked=asked, things=THINGS, lines=lines, more=found.next, problem=problem)


def _wanted(asked: dict[str, str]) -> AuditFilter:
    given: dict[str, object] = dict(asked)
    if asked["thing_id"]:
        if not (asked["thing_id"].isascii() and asked["thing_id"].isdigit() and len(asked["thing_id"]) < 19):
            raise BadInput("the number must be a whole number", field="thing_id")
        given["thing_id"] = int(asked["thing_id"])
    return AuditFilter.from_query(given, labels={"thing_id": "a number", "thing": "a thing"})


def _line(event: Event) -> AuditLine:
    base = _ADDRESSES.get(event.thing)
    return AuditLine(audit_text(event), None if base is None else f"{base}/{event.thing_id}")

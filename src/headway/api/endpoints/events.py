"""The events of groups, executions, schedules, templates, targets and webhooks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

from fastapi import Path, Query, Response

from headway.api.http.path_names import Name
from headway.api.http.query import LARGEST, Limit
from headway.api.http.routing import Here, RequestContext, Routes, answer
from headway.api.schemas.common import PageSchema
from headway.api.schemas.jobs import EventSchema, event_json
from headway.store import templates
from headway.store.db import Tx
from headway.store.groups import advance as groups
from headway.store.jobs import views as job_views
from headway.store.queue import targets
from headway.store.schedules import schedules
from headway.store.webhooks import endpoints

Find = Callable[[Tx, int, int], object]

routes = Routes("history")
After = Annotated[int, Query(ge=0, le=(1 << 31) - 1, description="`next` of the page before")]
PAGE = PageSchema[EventSchema]


def _group(kind: str, tx: Tx, tenant_id: int, number: int) -> object:
    return groups.find(tx, number, tenant_id, kind)


# Each noun with events under a number: the noun, its address, and the read that refuses a number of another tenant.
NUMBERED: tuple[tuple[str, str, Find], ...] = (
    ("group", "job-groups", partial(_group, "group")),
    ("execution", "schedule-executions", partial(_group, "execution")),
    ("schedule", "schedules", schedules.find_kept),
    ("template", "job-templates", templates.find),
    ("webhook", "webhooks", partial(endpoints.find, deleted=True)),
)


def _page(here: RequestContext, thing: str, number: int, after: int, limit: int) -> Response:
    """Answers events, oldest first; `after` and `next` are versions."""
    with here.read() as tx:
        found = job_views.history(tx, thing, number, after=after, limit=limit)
    more = str(found[-1].version) if len(found) == limit else None
    return answer({"items": [event_json(here.shown(event)) for event in found], "next": more})


def _declare(thing: str, address: str, find: Find) -> None:
    """Declares the address under which the events of a numbered thing are listed."""

    def events(here: Here, number: int, after: After = 0, limit: Limit = 200) -> Response:
        with here.read() as tx:
            find(tx, here.tenant_id, number)
        return _page(here, thing, number, after, limit)

    events.__annotations__["number"] = Annotated[int, Path(alias=f"{thing}_id", ge=1, le=LARGEST)]
    events.__name__ = f"{thing}_events"
    events.__doc__ = f"List the events of {'an' if thing[0] in 'aeiou' else 'a'} {thing}, oldest first."
    routes.get(f"/api/{address}/{{{thing}_id}}/events", answer=PAGE)(events)


for numbered in NUMBERED:
    _declare(*numbered)


@routes.get("/api/targets/{name:path}/events", answer=PAGE)
def target_events(here: Here, name: Name, after: After = 0, limit: Limit = 200) -> Response:
    """List the events of a target, oldest first."""
    with here.look() as tx:
        found = targets.shown(tx, here.tenant_id, name)
    return _page(here, "target", found.id, after, limit)

"""Resources and lanes: their limits, what occupies them, how many jobs wait.

Changing limits.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from headway.dashboard.page import PageRequest, Pages
from headway.engine.client import limits
from headway.errors import BadInput
from headway.model.access.permissions import Role, may_set_limit
from headway.model.queue.policies import BUILT_IN
from headway.model.values.names import whole
from headway.model.values.times import duration_text, seconds
from headway.store.queue import lane_views, lanes, occupancy

pages = Pages("resources")
# Number of lanes of a kind, and of occupants of a lane, that are shown; a search finds the others.
MOST, NAMED, LONGEST = 100, 10, 200
_WORDS = {
    "global": "One lane for all jobs without a target.",
    "per_task": "One lane for each task.",
    "per_resource": "Jobs that name resources need only those; all others share one lane.",
}


@pages.get("/resources")
def show(page: PageRequest) -> Response:
    wanted = page.asked.get("q")[:LONGEST]
    with page.look() as tx:
        concurrency, _ = lanes.read_concurrency(tx)
        version = lanes.limits_version(tx, page.tenant_id)
        kinds = {
            kind: lane_views.listed_some(tx, page.tenant_id, kind, wanted, MOST) for kind in ("resource", "policy")
        }
        takers = occupancy.takers(tx, page.tenant_id)
    return page.render(
        "resources.html",
        concurrency=concurrency,
        seen_version=version,
        kinds=kinds,
        may_set=lambda lane: may_set_limit(system=page.visitor.system, shared=lane.shared),
        named=NAMED,
        takers=takers,
        wanted=wanted,
        policies=BUILT_IN,
        policy_word=_WORDS.get(concurrency.policy, f"By {concurrency.policy}."),
        aging="" if concurrency.aging is None else duration_text(concurrency.aging),
    )


@pages.post("/resources/set", Role.ADMIN)
def set_limit(page: PageRequest) -> Response:
    name, limit = dict(page.form.fields).get("name", ""), _limit(page.form.get("limit"))
    if limit is None and not page.form.get("sure"):
        text = f"limit: without a limit any number of jobs run on {name!r} at once"
        raise BadInput(f"{text}; press “No limit…” beside it if that is what you want", field="limit")
    _adjust(page, {name: limit}, {})
    text = f"The limit of {name} is {limits.shown(limit)} now. Running jobs continue."
    return page.done(f"{text} Change the settings too: a worker that starts alone overwrites this with them.")


@pages.post("/resources/rules", Role.ADMIN, system=True)
def set_rules(page: PageRequest) -> Response:
    aging = page.form.given("aging")
    rules = {
        "policy": page.form.get("policy"),
        "targets": page.form.get("targets"),
        "aging": None if aging is None else seconds(aging, field="aging"),
    }
    _adjust(page, {}, rules)
    return page.done("The rules apply from now on, to all processes.")


def _adjust(page: PageRequest, requested: dict[str, int | None], rules: dict[str, Any]) -> None:
    version = page.form.given("version")
    limits.adjust(
        page.service.database,
        requested,
        rules,
        tenant_id=page.tenant_id,
        actor=page.visitor.actor,
        installation=page.visitor.system,
        if_version=None if version is None else whole(version, field="version"),
    )


def _limit(text: str) -> int | None:
    """Reads a limit; `none` means no limit, and an empty field is refused."""
    if not text:
        raise BadInput("limit: give a whole number from 1", field="limit")
    return None if text.lower() == "none" else whole(text, field="limit")

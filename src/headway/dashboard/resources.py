"""Resources and lanes: how much may run at once, who takes it now, how many wait; and changing that."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from headway.dashboard.pages import Page, Pages
from headway.engine import limits
from headway.errors import BadInput
from headway.model.access import Role, may_set_limit
from headway.model.policies import BUILT_IN
from headway.model.values import duration_text, seconds, whole
from headway.store import lanes, lanes_reading, occupancy

pages = Pages("resources")
# So many lanes of a kind are shown, and so many takers of each: a search finds the others.
MOST, NAMED, LONGEST = 100, 10, 200
_WORDS = {
    "global": "One lane for all work that is on no target.",
    "per_task": "One lane for each task.",
    "per_resource": "Work that names resources needs those alone; the rest shares one lane.",
}


@pages.get("/resources")
def show(page: Page) -> Response:
    wanted = page.asked.get("q")[:LONGEST]
    with page.look() as tx:
        concurrency, _ = lanes.read_concurrency(tx)
        version = lanes.limits_version(tx, page.tenant_id)
        kinds = {
            kind: lanes_reading.listed_some(tx, page.tenant_id, kind, wanted, MOST) for kind in ("resource", "policy")
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
def set_limit(page: Page) -> Response:
    name, limit = dict(page.form.fields).get("name", ""), _limit(page.form.get("limit"))
    if limit is None and not page.form.get("sure"):
        text = f"limit: without one any number of jobs run on {name!r} at once"
        raise BadInput(f"{text}; press “No limit…” beside it if that is what you want", field="limit")
    _adjust(page, {name: limit}, {})
    text = f"The limit of {name} is {limits.shown(limit)} now. What runs goes on."
    return page.done(f"{text} Change the settings too: a worker that starts alone writes them over this.")


@pages.post("/resources/rules", Role.ADMIN, system=True)
def set_rules(page: Page) -> Response:
    aging = page.form.given("aging")
    rules = {
        "policy": page.form.get("policy"),
        "targets": page.form.get("targets"),
        "aging": None if aging is None else seconds(aging, field="aging"),
    }
    _adjust(page, {}, rules)
    return page.done("The rules hold from now on, for all processes.")


def _adjust(page: Page, wished: dict[str, int | None], rules: dict[str, Any]) -> None:
    version = page.form.given("version")
    limits.adjust(
        page.service.database,
        wished,
        rules,
        tenant_id=page.tenant_id,
        actor=page.visitor.actor,
        installation=page.visitor.system,
        if_version=None if version is None else whole(version, field="version"),
    )


def _limit(text: str) -> int | None:
    """No limit is said by its word: a field that somebody emptied says nothing."""
    if not text:
        raise BadInput("limit: say how many, as a whole number from 1", field="limit")
    return None if text.lower() == "none" else whole(text, field="limit")

"""Resources and lanes: how much may run at once, who takes it now, how many wait; and changing that."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from headway.dashboard.pages import Page, Pages
from headway.engine import limits
from headway.errors import BadInput
from headway.model.access import Role
from headway.model.policies import BUILT_IN
from headway.model.values import duration_text, seconds
from headway.store import lanes, occupancy

pages = Pages("resources")
# So many lanes of a kind are shown, and so many takers of each: a search finds the others.
MOST, NAMED = 100, 10
_WORDS = {
    "global": "One lane for all work that is on no target.",
    "per_task": "One lane for each task.",
    "per_resource": "Work that names resources needs those alone; the rest shares one lane.",
}


@pages.get("/resources")
def show(page: Page) -> Response:
    wanted = page.asked.get("q").lower()
    with page.look() as tx:
        concurrency, _ = lanes.read_concurrency(tx)
        version = lanes.limits_version(tx, page.tenant_id)
        found = [lane for lane in lanes.listed(tx, page.tenant_id) if wanted in lane.name.lower()]
        takers = occupancy.takers(tx, page.tenant_id)
    kinds = {kind: [lane for lane in found if lane.kind == kind] for kind in ("resource", "policy")}
    return page.render(
        "resources.html",
        concurrency=concurrency,
        seen_version=version,
        kinds=kinds,
        most=MOST,
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
    if rules["aging"] == 0:
        raise BadInput("aging must be more than 0: leave it empty to turn it off", field="aging")
    if rules["targets"] not in ("own", "global"):
        raise BadInput("targets must be own or global", field="targets")
    _adjust(page, {}, rules)
    return page.done("The rules hold from now on, for all processes.")


@pages.post("/resources/release")
def release(page: Page) -> Response:
    """Takes back what a program outside holds."""
    given = page.client.release_reservation(_number(page.form.get("reservation"), "reservation"))
    return page.done(f"Reservation {given.id} of {given.holder} is over.")


def _adjust(page: Page, wished: dict[str, int | None], rules: dict[str, Any]) -> None:
    version = page.form.given("version")
    limits.adjust(
        page.service.database,
        wished,
        rules,
        tenant_id=page.tenant_id,
        actor=page.visitor.actor,
        installation=page.visitor.system,
        if_version=None if version is None else _number(version, "version"),
    )


def _limit(text: str) -> int | None:
    return None if text.lower() in ("", "none") else _number(text, "limit")


def _number(text: str, field: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadInput(f"{field} must be a whole number, not {text[:40]!r}", field=field)
    return int(text)

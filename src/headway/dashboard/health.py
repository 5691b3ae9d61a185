"""How the process stands that serves this page, and the installation around it: what `/readyz` says, in full."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from headway.dashboard.pages import Page, Pages
from headway.engine.health import storage
from headway.store import figures
from headway.store.wall import wall_state

pages = Pages("health")


@pages.get("/health")
def show(page: Page) -> Response:
    """Everybody sees whether it is ready. What is about all tenants is for those of the system."""
    found = page.service.health()
    return page.render("health.html", health=found, inside=_inside(page) if page.visitor.system else None)


def _inside(page: Page) -> dict[str, Any]:
    service = page.service
    with page.look() as tx:
        facts = {
            "workers": figures.workers(tx),
            "held": figures.held_jobs(tx),
            "pending": figures.pending_deliveries(tx),
            "lag": figures.tick_lag(tx),
            "wall": wall_state(tx),
        }
    return {**facts, "rounds": service.rounds(), "storage": storage(service.database, service.terms.artifacts)}

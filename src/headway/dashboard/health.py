"""What somebody should look at, how the process stands that serves this page (what `/readyz` says, in full), and the
installation around it."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from headway.dashboard import attention
from headway.dashboard.attention import Finding
from headway.dashboard.pages import Page, Pages
from headway.engine.health import Health, storage
from headway.store import figures
from headway.store.wall import wall_state

pages = Pages("health")
UNREADABLE = ("database_unreachable", "database_unreadable", "schema")


@pages.get("/health")
def show(page: Page) -> Response:
    """Everybody sees whether it is ready. What is about all tenants is for those of the system."""
    found = page.service.health()
    return page.render(
        "health.html",
        health=found,
        findings=_findings(page, found),
        checked=attention.CHECKED,
        most=attention.LISTED,
        inside=_inside(page) if page.visitor.system else None,
    )


def _findings(page: Page, found: Health) -> list[Finding] | None:
    """None: the database cannot be asked."""
    if any(one.code in UNREADABLE for one in found.reasons):
        return None
    with page.look() as tx:
        return attention.findings(tx, page.tenant_id, page.now)


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

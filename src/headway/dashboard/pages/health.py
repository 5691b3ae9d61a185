"""The health page: items that need attention, readiness, the installation."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from headway.dashboard.page import PageRequest, Pages
from headway.engine.monitoring import checks
from headway.engine.monitoring.check import LISTED, Audience, Expected, Scope
from headway.engine.monitoring.readiness import Health, storage
from headway.model.checks import Finding
from headway.store import stats
from headway.store.postgres.row_security import row_security

pages = Pages("health")
UNREADABLE = ("database_unreachable", "database_unreadable", "schema")


@pages.get("/health")
def show(page: PageRequest) -> Response:
    """Shows readiness to every visitor.

    Figures about all tenants only to system visitors.
    """
    found = page.service.health()
    return page.render(
        "health.html",
        health=found,
        findings=_findings(page, found),
        checked=[check.question for check in checks.checks_for(Audience.HEALTH_PAGE)],
        most=LISTED,
        inside=_inside(page) if page.visitor.system else None,
    )


def _findings(page: PageRequest, found: Health) -> list[Finding] | None:
    """Returns the things that need a person, or None if the database cannot be read."""
    if any(reason.code in UNREADABLE for reason in found.reasons):
        return None
    with page.look() as tx:
        return list(checks.items(Scope(tx, page.tenant_id, page.now, _expected(page))))


def _expected(page: PageRequest) -> Expected:
    client = page.client
    return Expected(client.registry.specs.keys(), client.secrets, client.connections)


def _inside(page: PageRequest) -> dict[str, Any]:
    service = page.service
    with page.look() as tx:
        facts = {
            "workers": stats.workers(tx),
            "held": stats.held_jobs(tx),
            "pending": stats.pending_deliveries(tx),
            "lag": stats.tick_lag(tx),
            "wall": row_security(tx),
        }
    return {**facts, "rounds": service.rounds(), "storage": storage(service.database, service.terms.artifacts)}

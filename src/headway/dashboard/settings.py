"""The settings of the process that serves this page: what is in force, where each value was given, what it means."""

from __future__ import annotations

from starlette.responses import Response

from headway.dashboard.pages import Page, Pages
from headway.model.access import Role
from headway.store import lanes

pages = Pages("settings")


@pages.get("/settings", Role.ADMIN, system=True)
def show(page: Page) -> Response:
    found = page.service.settings()
    with page.look() as tx:
        rules, _ = lanes.read_concurrency(tx)
    given = [one for one in found if one.source != "default"]
    others = [one for one in found if one.source == "default"]
    return page.render("settings.html", given=given, others=others, rules=rules)

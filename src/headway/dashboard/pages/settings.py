"""The settings in force in this process, with their sources and meanings."""

from __future__ import annotations

from starlette.responses import Response

from headway.dashboard.page import PageRequest, Pages
from headway.model.access.permissions import Role
from headway.store.queue import lanes

pages = Pages("settings")


@pages.get("/settings", Role.ADMIN, system=True)
def show(page: PageRequest) -> Response:
    found = page.service.settings()
    with page.look() as tx:
        rules, _ = lanes.read_concurrency(tx)
    given = [one for one in found if one.source != "default"]
    others = [one for one in found if one.source == "default"]
    return page.render("settings.html", given=given, others=others, rules=rules)

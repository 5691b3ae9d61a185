"""The reference of the HTTP API at `/docs`: the OpenAPI document, with forms that send requests to this server.

Swagger UI renders it. Its files come with the package `fastapi-swagger`; nothing is loaded from elsewhere.
"""

from __future__ import annotations

from starlette.responses import Response

from headway.dashboard.page import REFERENCE, PageRequest, Pages
from headway.model.access.permissions import Role

pages = Pages("reference")
FILES = ("fastapi_swagger", "resources")  # a package, and the folder in it


@pages.get(REFERENCE, Role.VIEWER)
def show(page: PageRequest) -> Response:
    return page.render("reference.html")

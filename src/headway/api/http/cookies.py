"""Names, values and attributes of the cookies that belong to one server."""

from __future__ import annotations

import hashlib
import re
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response

from headway.model.access.cookies import MOST_VALUES

Scope = MutableMapping[str, Any]
SESSION_COOKIE, TENANT_COOKIE = "headway_session", "headway_tenant"
# The path at which another application mounted this one; the access middleware stores it in the scope.
ROOT = "headway.root"
_PORT = re.compile(r":([0-9]{1,5})$")


def cookie_name(name: str, scope: Scope) -> str:
    """Returns a cookie's name with the port in it.

    Browsers share cookies between all ports of a host; two servers on one host would log each other out. Under TLS the
    prefix `__Host-` keeps pages without TLS and of other names in the domain from setting the cookie. Such a cookie is
    valid for all paths, so its name tells the path at which the server is mounted.
    """
    found = _PORT.search(Headers(scope=scope).get("host", ""))
    secure = is_secure(scope)
    usual = "443" if secure else "80"
    plain = f"{name}_{found.group(1) if found else usual}"
    root = scope.get(ROOT, "")
    if not secure:
        return plain
    return f"__Host-{plain}" + (f"_{hashlib.sha256(root.encode()).hexdigest()[:8]}" if root else "")


def is_secure(scope: Scope) -> bool:
    return scope.get("scheme") == "https"


def cookie_values(name: str, scope: Scope) -> list[str]:
    """Returns the values of a cookie, in the order in which the browser sent them.

    There are several if a server on another port set the cookie too, for another path.
    """
    named = cookie_name(name, scope)
    pairs = (pair.strip().partition("=") for line in Headers(scope=scope).getlist("cookie") for pair in line.split(";"))
    values = [value.strip() for key, _, value in pairs if key == named and value.strip()]
    return values[:MOST_VALUES]


def set_cookie(response: Response, name: str, value: str, scope: Scope, *, seconds: int | None = None) -> None:
    """Sets a cookie of this server."""
    response.set_cookie(cookie_name(name, scope), value, max_age=seconds, **_attributes(scope))


def drop_cookie(response: Response, name: str, scope: Scope) -> None:
    response.delete_cookie(cookie_name(name, scope), **_attributes(scope))


def _attributes(scope: Scope) -> dict[str, Any]:
    secure = is_secure(scope)
    path = "/" if secure else scope.get(ROOT) or "/"
    return {"path": path, "secure": secure, "httponly": True, "samesite": "lax"}

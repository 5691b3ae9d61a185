"""Names of targets and tenants in paths; a name may contain slashes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Depends, Path
from starlette.exceptions import HTTPException

from headway.model.values.names import check_name

# Names contain no control characters, so this one can replace an encoded slash until the route is matched.
STAND_IN = "\x1f"
NAMED = (b"/targets/", b"/tenants/")
_SLASH = re.compile(rb"%2f", re.IGNORECASE)
_TAKEN = re.compile(rb"%1f", re.IGNORECASE)
_EITHER = re.compile(rb"%[12]f", re.IGNORECASE)


def keep_slashes(scope: MutableMapping[str, Any]) -> None:
    """Keeps an encoded slash inside one path segment.

    Servers decode `a%2Fb` to `a/b` before routing, which would split the name.
    """
    raw = scope.get("raw_path") or b""
    if _EITHER.search(raw) and any(part in raw for part in NAMED):
        scope["path"] = unquote(_SLASH.sub(b"%1F", _TAKEN.sub(b"%1E", raw)).decode("ascii", "replace"))


class KeepSlashes:
    """Middleware in front of the router that applies `keep_slashes`."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            keep_slashes(scope)
        await self.app(scope, receive, send)


# Characters of a name with its percent signs; a name has 200.
MOST = 300


def _name(name: Annotated[str, Path(max_length=MOST, description="Percent-encoded, a slash too: `a%2Fb`")]) -> str:
    if not name:
        raise HTTPException(404)
    return check_name(name.replace(STAND_IN, "/"), field="name")


Name = Annotated[str, Depends(_name)]

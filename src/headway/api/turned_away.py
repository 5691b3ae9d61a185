"""The page for a browser that does not get past the door: it stands by itself, and asks the database nothing."""

from __future__ import annotations

from html import escape

from starlette.responses import HTMLResponse, Response

from headway.api.problems import of_error
from headway.errors import HeadwayError

POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self';"
    " frame-ancestors 'none'"
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{status} · Headway</title>
<link rel="stylesheet" href="{root}/ui/static/headway.css">
</head>
<body>
<main id="main">
<h1>This page cannot be shown</h1>
<p class="banner bad">{text}</p>
<p><a href="{root}/ui/">To the first page</a></p>
</main>
</body>
</html>
"""


def page(error: HeadwayError, root: str) -> Response:
    """With the status and the headers that a program gets."""
    told = of_error(error)
    text = _PAGE.format(status=told.status_code, root=escape(root), text=escape(str(error)))
    kept = {name: told.headers[name] for name in ("retry-after", "www-authenticate") if name in told.headers}
    body = text.encode("utf-8", "backslashreplace")
    return HTMLResponse(body, told.status_code, {"Content-Security-Policy": POLICY, **kept})

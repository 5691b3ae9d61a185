"""The page for a browser that the access middleware refuses.

It needs no database.
"""

from __future__ import annotations

from html import escape

from starlette.responses import HTMLResponse, Response

from headway.api.http.problems import of_error
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
    """Renders the error as a page, with the status and the headers of the problem."""
    problem = of_error(error)
    text = _PAGE.format(status=problem.status_code, root=escape(root), text=escape(str(error)))
    kept = {name: problem.headers[name] for name in ("retry-after", "www-authenticate") if name in problem.headers}
    body = text.encode("utf-8", "backslashreplace")
    return HTMLResponse(body, problem.status_code, {"Content-Security-Policy": POLICY, **kept})

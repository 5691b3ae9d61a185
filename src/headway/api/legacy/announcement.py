"""Announces the end of the old addresses: the headers of their answers, and the day on which they end."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

from headway.clock import micros

SINCE, UNTIL = datetime(2026, 11, 1, tzinfo=UTC), datetime(2027, 12, 31, tzinfo=UTC)
_SUCCESSORS = {"/jobs": "/api/jobs", "/targets": "/api/targets"}


def successor_of(path: str) -> str | None:
    """Returns the new address for a path of an old system; None for any other path."""
    return next((new for old, new in _SUCCESSORS.items() if path == old or path.startswith(f"{old}/")), None)


def link(address: str) -> dict[str, str]:
    return {"Link": f'<{address}>; rel="successor-version"'}


def headers_for(path: str, root: str) -> list[tuple[bytes, bytes]]:
    """Returns the headers of every answer below this path, also of errors; none for paths that were never old."""
    successor = successor_of(path)
    if successor is None:
        return []
    headers = {
        "Deprecation": f"@{int(SINCE.timestamp())}",
        "Sunset": format_datetime(UNTIL, usegmt=True),
        **link(root + successor),
    }
    return [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]


def in_force(enabled: bool | None, now: int) -> bool:
    """Decides whether the old addresses answer. Without a setting they end with their last day."""
    return now < micros(UNTIL.timestamp()) if enabled is None else enabled

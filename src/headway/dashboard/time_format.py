"""Formats instants: relative, in the reader's zone, in UTC or a schedule's zone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from markupsafe import Markup

from headway.errors import BadInput
from headway.model.explain.forecast import span
from headway.model.schedules.timezones import check_zone

MODES = ("relative", "local", "utc", "schedule")
THEMES = ("auto", "light", "dark")
TIME, ZONE, THEME = "headway_time", "headway_zone", "headway_theme"


@dataclass(frozen=True, slots=True)
class DisplayPreferences:
    """Display preferences of a reader. `zone` is the zone of the browser."""

    mode: str = "relative"
    zone: str = "UTC"
    theme: str = "auto"


def preferences_of(cookies: Mapping[str, str]) -> DisplayPreferences:
    """Reads the preferences from cookies; invalid values fall back to the defaults."""
    mode, theme = cookies.get(TIME, ""), cookies.get(THEME, "")
    zone = _known(unquote(cookies.get(ZONE, "UTC")))
    return DisplayPreferences(mode if mode in MODES else "relative", zone, theme if theme in THEMES else "auto")


def _known(zone: str) -> str:
    """Returns the zone, or UTC if there is no zone with exactly this spelling."""
    try:
        return check_zone(zone)
    except BadInput:
        return "UTC"


def moment(at: int | None, now: int, preferences: DisplayPreferences, zone: str | None = None) -> Markup:
    """Renders an instant; its title has all other formats."""
    if at is None:
        return Markup('<span class="none">never</span>')
    text, stamp = _text(at, now, preferences, zone), iso(at)
    title = full(at, preferences, zone)
    kind = Markup(' data-relative=""') if preferences.mode == "relative" else ""
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(stamp, title, kind, text)


def _text(at: int, now: int, preferences: DisplayPreferences, zone: str | None) -> str:
    if preferences.mode == "relative":
        return relative(at, now)
    return written(at, _zone(preferences, zone))


def _zone(preferences: DisplayPreferences, zone: str | None) -> str:
    match preferences.mode:
        case "local":
            return preferences.zone
        case "schedule":
            return zone or preferences.zone
    return "UTC"


def clock(at: int, preferences: DisplayPreferences) -> Markup:
    """Renders the time of day of a log line.

    Relative times would be the same for many lines.
    """
    stamp = iso(at)
    shown = datetime.fromtimestamp(at / 1e6, ZoneInfo(clock_zone(preferences)))
    return Markup('<time class="at" datetime="{0}" title="{0}">{1:%H:%M:%S}</time>').format(stamp, shown)


def clock_zone(preferences: DisplayPreferences) -> str:
    """Returns the zone for clock times and days: UTC if chosen, else the reader's."""
    return "UTC" if preferences.mode == "utc" else preferences.zone


def relative(at: int, now: int) -> str:
    if abs(now - at) < 1_000_000:
        return "now"
    return f"{span(now - at)} ago" if at < now else f"in {span(at - now)}"


def written(at: int, zone: str) -> str:
    try:
        local = datetime.fromtimestamp(at / 1e6, ZoneInfo(zone))
    except (OverflowError, ValueError):  # near the end of the year 9999, local time may be in the year 10000
        return iso(at)
    return f"{local:%Y-%m-%d %H:%M:%S} {'UTC' if zone == 'UTC' else local.tzname()}"


def full(at: int, preferences: DisplayPreferences, zone: str | None = None) -> str:
    zones = dict.fromkeys(("UTC", preferences.zone, zone or "UTC"))
    return " · ".join(written(at, name) for name in zones)


def iso(at: int) -> str:
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def since(at: int, now: int) -> Markup:
    """Renders the time since an instant; the page keeps it counting up."""
    return Markup('<span class="ticks" data-since="{}">{}</span>').format(at // 1000, span(max(0, now - at)))


def until(at: int, now: int) -> Markup:
    """Renders the time until an instant; the page keeps it counting down."""
    return Markup('<span class="ticks" data-until="{}">{}</span>').format(at // 1000, span(max(0, at - now)))

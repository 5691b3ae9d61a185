"""How instants and durations are shown: relative, in the reader's zone, in UTC, or in a schedule's own zone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from markupsafe import Markup

from headway.errors import BadInput
from headway.model.estimate import span
from headway.model.zones import check_zone

MODES = ("relative", "local", "utc", "schedule")
THEMES = ("auto", "light", "dark")
TIME, ZONE, THEME = "headway_time", "headway_zone", "headway_theme"


@dataclass(frozen=True, slots=True)
class Taste:
    """How one reader likes to see things. `zone` is what their browser said."""

    mode: str = "relative"
    zone: str = "UTC"
    theme: str = "auto"


def taste_of(cookies: Mapping[str, str]) -> Taste:
    """What is not one of ours counts as nothing."""
    mode, theme = cookies.get(TIME, ""), cookies.get(THEME, "")
    zone = _known(unquote(cookies.get(ZONE, "UTC")))
    return Taste(mode if mode in MODES else "relative", zone, theme if theme in THEMES else "auto")


def _known(zone: str) -> str:
    """As it is spelled: zones are files."""
    try:
        return check_zone(zone)
    except BadInput:
        return "UTC"


def moment(at: int | None, now: int, taste: Taste, zone: str | None = None) -> Markup:
    """An instant. Everything else that is known of it is in its title."""
    if at is None:
        return Markup('<span class="none">never</span>')
    text, stamp = _text(at, now, taste, zone), iso(at)
    title = full(at, taste, zone)
    kind = Markup(' data-relative=""') if taste.mode == "relative" else ""
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(stamp, title, kind, text)


def _text(at: int, now: int, taste: Taste, zone: str | None) -> str:
    if taste.mode == "relative":
        return relative(at, now)
    return written(at, _zone(taste, zone))


def _zone(taste: Taste, zone: str | None) -> str:
    match taste.mode:
        case "local":
            return taste.zone
        case "schedule":
            return zone or taste.zone
    return "UTC"


def clock(at: int, taste: Taste) -> Markup:
    """An instant among many that belong together, a line of a log: "3 min ago" would tell none from the next."""
    stamp = iso(at)
    shown = datetime.fromtimestamp(at / 1e6, ZoneInfo(clock_zone(taste)))
    return Markup('<time class="at" datetime="{0}" title="{0}">{1:%H:%M:%S}</time>').format(stamp, shown)


def clock_zone(taste: Taste) -> str:
    """Whose clocks show times and count days: who sees times relative, or by schedules, has their own clocks too."""
    return "UTC" if taste.mode == "utc" else taste.zone


def relative(at: int, now: int) -> str:
    if abs(now - at) < 1_000_000:
        return "now"
    return f"{span(now - at)} ago" if at < now else f"in {span(at - now)}"


def written(at: int, zone: str) -> str:
    try:
        local = datetime.fromtimestamp(at / 1e6, ZoneInfo(zone))
    except (OverflowError, ValueError):  # the last hours of the year 9999 are in the next year elsewhere
        return iso(at)
    return f"{local:%Y-%m-%d %H:%M:%S} {'UTC' if zone == 'UTC' else local.tzname()}"


def full(at: int, taste: Taste, zone: str | None = None) -> str:
    zones = dict.fromkeys(("UTC", taste.zone, zone or "UTC"))
    return " · ".join(written(at, one) for one in zones)


def iso(at: int) -> str:
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def since(at: int, now: int) -> Markup:
    """How long something has lasted, going on."""
    return Markup('<span class="ticks" data-since="{}">{}</span>').format(at // 1000, span(max(0, now - at)))


def until(at: int, now: int) -> Markup:
    """How long it is until something, counting down."""
    return Markup('<span class="ticks" data-until="{}">{}</span>').format(at // 1000, span(max(0, at - now)))

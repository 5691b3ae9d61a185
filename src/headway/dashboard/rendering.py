"""The template environment and the functions that all templates can use."""

from __future__ import annotations

import json
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from headway import __version__
from headway.dashboard import state_styles, time_format
from headway.dashboard.links import EXECUTIONS, linked
from headway.model.explain.forecast import span

# Path, label, and the key that opens the page after `g`.
NAVIGATION = (
    ("/", "Now", "n"),
    ("/queue", "Queue", "q"),
    ("/schedules", "Schedules", "s"),
    ("/executions", "Executions", "e"),
    ("/groups", "Groups", "p"),
    ("/targets", "Targets", "t"),
    ("/resources", "Resources", "r"),
    ("/history", "History", "h"),
    ("/workers", "Workers", "w"),
    ("/webhooks", "Webhooks", "k"),
    ("/access", "Access", "a"),
    ("/audit", "Audit", "u"),
    ("/settings", "Settings", "i"),
    ("/health", "Health", "l"),
)


@pass_context
def _when(context: Context, at: int | None, zone: str | None = None) -> Markup:
    page = context["page"]
    return time_format.moment(at, page.now, page.preferences, zone)


@pass_context
def _since(context: Context, at: int) -> Markup:
    return time_format.since(at, context["page"].now)


@pass_context
def _until(context: Context, at: int) -> Markup:
    return time_format.until(at, context["page"].now)


@pass_context
def _clock_time(context: Context, at: int) -> Markup:
    return time_format.clock(at, context["page"].preferences)


@pass_context
def _clock_zone(context: Context) -> str:
    return time_format.clock_zone(context["page"].preferences)


@pass_context
def _with_links(context: Context, text: str) -> Markup:
    """Links the executions in a message."""
    page = context["page"]
    return linked(text, page.address, EXECUTIONS, here=page.request.url.path)


@pass_context
def _url(context: Context, path: str) -> str:
    return str(context["page"].address(path))


def _pretty(value: object) -> str:
    """Formats a value or stored JSON text with indentation."""
    try:
        shown = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return str(value)
    return json.dumps(shown, indent=2, ensure_ascii=False)


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("headway.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(
        when=_when,
        since=_since,
        until=_until,
        clock_time=_clock_time,
        clock_zone=_clock_zone,
        url=_url,
        with_links=_with_links,
        span=span,
        words=state_styles,
        navigation=NAVIGATION,
        version=__version__,
        modes=time_format.MODES,
        themes=time_format.THEMES,
    )
    made.filters["pretty"] = _pretty
    return made


_ENVIRONMENT = _environment()


def render(template: str, **facts: Any) -> str:
    return _ENVIRONMENT.get_template(template).render(facts)

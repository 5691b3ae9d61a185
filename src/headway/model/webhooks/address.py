"""Shows webhook addresses without path and query, to viewers. Pure.

The path of an address often is its secret: a receiver that checks no signature takes everything that is sent there.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import singledispatch
from typing import Any, TypeVar
from urllib.parse import urlsplit

from headway.model.event import Event
from headway.model.webhooks.webhook import TEST, Delivery, Endpoint, Try

T = TypeVar("T")
_ADDRESS = re.compile(r"https?://[^\s\"'<>]+", re.IGNORECASE)
# The field of a job, a task or a template that names an address.
OF_JOB = "webhook_url"


def origin_of(url: str) -> str:
    """Returns an address without user, path and query; `…` stands for what is left out."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "…"
    whole = f"{parts.scheme}://{host}"
    return url if url in (whole, f"{whole}/") else f"{whole}/…"


def without_paths(text: str) -> str:
    """Returns a text in which each address is shown without path and query."""
    return _ADDRESS.sub(lambda match: origin_of(match[0]), text)


@singledispatch
def _hidden(thing: Any) -> Any:
    raise TypeError(f"{type(thing).__name__} has no address")


def for_viewer(thing: T) -> T:
    """Returns a webhook, a delivery, a try or an event as viewers see it."""
    hidden: T = _hidden(thing)
    return hidden


@_hidden.register
def _(endpoint: Endpoint) -> Endpoint:
    reason = None if endpoint.reason is None else without_paths(endpoint.reason)
    return replace(endpoint, url=origin_of(endpoint.url), reason=reason)


@_hidden.register
def _(delivery: Delivery) -> Delivery:
    return replace(
        delivery,
        url=None if delivery.url is None else origin_of(delivery.url),
        last_error=None if delivery.last_error is None else without_paths(delivery.last_error),
        # The test message is the webhook itself; other messages are about jobs.
        body=_in_json(delivery.body) if delivery.event == TEST else delivery.body,
    )


@_hidden.register
def _(attempt: Try) -> Try:
    error = None if attempt.error is None else without_paths(attempt.error)
    # The receiver's answer may quote the path of the request.
    return replace(attempt, error=error, request=_in_json(attempt.request) or "{}", response=None)


@_hidden.register
def _(event: Event) -> Event:
    if event.data is None or (event.thing != "webhook" and OF_JOB not in event.data):
        return event
    if event.thing == "webhook":
        return replace(event, data=_in_json(event.data))
    return replace(event, data=json.dumps(_of_jobs(json.loads(event.data)), ensure_ascii=False))


def _in_json(text: str | None) -> str | None:
    return None if text is None else json.dumps(_everywhere(json.loads(text)), ensure_ascii=False)


def _everywhere(value: Any) -> Any:
    match value:
        case str():
            return without_paths(value)
        case list():
            return [_everywhere(item) for item in value]
        case dict():
            return {name: _everywhere(item) for name, item in value.items()}
    return value


def _of_jobs(value: Any) -> Any:
    match value:
        case list():
            return [_of_jobs(item) for item in value]
        case dict():
            return {name: _everywhere(item) if name == OF_JOB else _of_jobs(item) for name, item in value.items()}
    return value

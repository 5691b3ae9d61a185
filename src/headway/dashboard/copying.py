"""A job as text to paste elsewhere: what makes one like it with curl, in Python and on the command line.

Everything in a job was written by somebody: each text is quoted for where it is pasted, so that it stays one value.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.model.job import Job, Options
from headway.model.retry import RetryPolicy
from headway.model.values import duration_text


@dataclass(frozen=True, slots=True)
class Copies:
    curl: str
    python: str
    cli: str


def copies(job: Job, target: str | None, address: str, *, with_token: bool) -> Copies:
    """`address` is that of the API: everything before `/api`."""
    params: dict[str, Any] = json.loads(job.params)
    wishes = _wishes(job, target)
    return Copies(
        _curl(f"{address}/api/jobs", {"task": job.task, "params": params, **wishes}, with_token=with_token),
        _python(job.task, params, wishes),
        _cli(job.task, params, wishes),
    )


def _wishes(job: Job, target: str | None) -> dict[str, Any]:
    """What was asked for beyond the defaults, by the names of `POST /api/jobs`."""
    options, usual = Options.parse(job.options), RetryPolicy()
    retry = {"max_attempts": options.retry.max_attempts, "base_delay": options.retry.base_delay}
    usual_retry = {"max_attempts": usual.max_attempts if target is None else 0, "base_delay": usual.base_delay}
    given = {
        "priority": job.priority or None,
        "target": target,
        "resources": list(options.resources) or None,
        "key": job.key,
        "timeout": options.timeout,
        "budget": dict(options.budget) or None,
        "retry_policy": {name: wish for name, wish in retry.items() if wish != usual_retry[name]} or None,
        "on_lost": options.on_lost if options.on_lost != "retry" else None,
        "on_error": options.on_error if options.on_error != "hold" else None,
    }
    return {name: _whole(wish) for name, wish in given.items() if wish is not None}


def _whole(value: Any) -> Any:
    """`5000` instead of `5000.0`."""
    if isinstance(value, dict):
        return {name: _whole(one) for name, one in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


# --- curl ---------------------------------------------------------------------------------------------------------


def _curl(url: str, body: Mapping[str, Any], *, with_token: bool) -> str:
    # The token is for the shell to fill in: it is never on a page.
    token = ['-H "Authorization: Bearer $HEADWAY_TOKEN"'] if with_token else []
    return _lines(
        f"curl -X POST {shlex.quote(url)}",
        *token,
        "-H 'Content-Type: application/json'",
        f"--data-raw {shlex.quote(json_text(body))}",
    )


def json_text(value: object) -> str:
    """JSON in which nothing is invisible: no control character reaches a terminal, and no text changes direction."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def _lines(*parts: str) -> str:
    return " \\\n  ".join(parts)


# --- Python -------------------------------------------------------------------------------------------------------


def _python(task: str, params: Mapping[str, Any], wishes: Mapping[str, Any]) -> str:
    given = "".join(f", {name}={value!r}" for name, value in wishes.items())
    return f"from headway import App\n\njob = App().enqueue({task!r}, {params!r}{given})\nprint(job.result(timeout=60))"


# --- the command line ---------------------------------------------------------------------------------------------


def _cli(task: str, params: Mapping[str, Any], wishes: Mapping[str, Any]) -> str:
    flags = [f"--params={json_text(params)}", *_flags(wishes)]
    # A name that begins with a dash is a name only after two.
    named = [shlex.quote(task)] if not task.startswith("-") else []
    rest = [] if named else [f"-- {shlex.quote(task)}"]
    return " ".join(["headway run", *named, *map(shlex.quote, flags), *rest])


def _flags(wishes: Mapping[str, Any]) -> Sequence[str]:
    retry = wishes.get("retry_policy", {})
    plain = {
        "priority": wishes.get("priority"),
        "target": wishes.get("target"),
        "key": wishes.get("key"),
        "timeout": None if "timeout" not in wishes else duration_text(wishes["timeout"]),
        "retries": retry.get("max_attempts"),
        "base-delay": None if "base_delay" not in retry else duration_text(retry["base_delay"]),
        "on-lost": wishes.get("on_lost"),
        "on-error": wishes.get("on_error"),
    }
    found = [f"--{name}={value}" for name, value in plain.items() if value is not None]
    found += [f"--resource={name}" for name in wishes.get("resources", ())]
    return [*found, *(f"--budget={meter}={json.dumps(cap)}" for meter, cap in wishes.get("budget", {}).items())]

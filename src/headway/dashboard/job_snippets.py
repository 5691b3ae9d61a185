"""Commands that create a job like this one: curl, Python, the command line.

Texts in a job come from its creator, so each is quoted for its shell or language and stays one value.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.model.jobs.job import JobRecord, Options
from headway.model.jobs.retry import RetryPolicy
from headway.model.values.times import duration_text, instant_text

# Default addresses of the server; for them `headway run` on this machine needs no --server.
_HERE = frozenset(("http://127.0.0.1:8642", "http://localhost:8642", "http://[::1]:8642"))
# Options that the command line cannot express.
_NOT_IN_CLI = ("webhook_url", "webhook_events")
_NOT_IN_CLI_RETRY = ("max_delay", "jitter")


@dataclass(frozen=True, slots=True)
class Copies:
    """The commands. `unsaid` lists for each the options that it cannot express."""

    curl: str
    python: str
    cli: str
    unsaid: Mapping[str, Sequence[str]]


def copies(
    job: JobRecord, target: str | None, address: str, *, now: int, with_token: bool, full: bool = True
) -> Copies:
    """Builds the commands; `address` is the API's address before `/api`.

    Times before `now` are left out. Without `full` the address of the job's webhook is left out too.
    """
    params: dict[str, Any] = json.loads(job.params)
    chosen = _chosen_options(job, target, now)
    if not full:
        chosen = _without(chosen, ("webhook_url", "webhook_events"))
    body = {"task": job.task, "params": params, **chosen}
    retry = [f"retry_policy.{name}" for name in _NOT_IN_CLI_RETRY if name in chosen["retry_policy"]]
    return Copies(
        _curl(f"{address}/api/jobs", body, with_token=with_token),
        _python(job.task, params, chosen),
        _cli(job.task, params, chosen, None if address in _HERE else address),
        {"cli": [*_among(chosen, _NOT_IN_CLI), *retry]},
    )


def _without(chosen: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in chosen.items() if name not in names}


def _among(chosen: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    return [name for name in names if name in chosen]


def _chosen_options(job: JobRecord, target: str | None, now: int) -> dict[str, Any]:
    """Returns all stored options under their names in `POST /api/jobs`.

    Defaults are written out too, because the task and the settings may differ where the command is pasted.
    """
    options = Options.parse(job.options)
    given = {
        "priority": job.priority,
        "target": target,
        "resources": list(options.resources) or None,
        "key": job.key,
        "not_before": _to_come(job.not_before, now),
        "expires_at": _to_come(job.expires_at, now),
        "hold": bool(job.hold) or None,
        "timeout": options.timeout,
        "budget": dict(options.budget) or None,
        "retry_policy": _retry(options.retry),
        "on_lost": options.on_lost,
        "on_error": options.on_error,
        "on_shutdown": options.on_shutdown,
        "webhook_url": options.webhook_url,
        "webhook_events": list(options.webhook_events) or None,
    }
    return {name: _whole(value) for name, value in given.items() if value is not None}


def _to_come(at: int | None, now: int) -> str | None:
    return instant_text(at) if at is not None and at > now else None


def _retry(policy: RetryPolicy) -> dict[str, Any]:
    more = {"max_delay": policy.max_delay, "jitter": policy.jitter or None}
    usual = {"max_attempts": policy.max_attempts, "base_delay": policy.base_delay}
    return usual | {name: value for name, value in more.items() if value is not None}


def _whole(value: Any) -> Any:
    """Turns `5000.0` into `5000`, at any depth of mappings."""
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


# --- curl ---------------------------------------------------------------------------------------------------------


def _curl(url: str, body: Mapping[str, Any], *, with_token: bool) -> str:
    # The shell fills in the token, so that no page contains it.
    token = ['-H "Authorization: Bearer $HEADWAY_TOKEN"'] if with_token else []
    return _lines(
        f"curl -X POST {shlex.quote(url)}",
        *token,
        "-H 'Content-Type: application/json'",
        f"--data-raw {shlex.quote(json_text(body))}",
    )


def json_text(value: object) -> str:
    """Returns JSON with control characters and direction marks escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def _lines(*parts: str) -> str:
    return " \\\n  ".join(parts)


# --- Python -------------------------------------------------------------------------------------------------------


def _python(task: str, params: Mapping[str, Any], chosen: Mapping[str, Any]) -> str:
    given = "".join(f", {name}={value!r}" for name, value in chosen.items())
    return f"from headway import App\n\njob = App().enqueue({task!r}, {params!r}{given})\nprint(job.result(timeout=60))"


# --- the command line ---------------------------------------------------------------------------------------------


def _cli(task: str, params: Mapping[str, Any], chosen: Mapping[str, Any], server: str | None) -> str:
    flags = [f"--params={json_text(params)}", *_flags(chosen)]
    if server is not None:
        flags.append(f"--server={server}")
    # A task whose name begins with a dash must follow `--`.
    named = [shlex.quote(task)] if not task.startswith("-") else []
    rest = [] if named else [f"-- {shlex.quote(task)}"]
    return " ".join(["headway run", *named, *map(shlex.quote, flags), *rest])


def _flags(chosen: Mapping[str, Any]) -> Sequence[str]:
    retry = chosen["retry_policy"]
    plain = {
        "priority": chosen["priority"],
        "target": chosen.get("target"),
        "key": chosen.get("key"),
        "not-before": chosen.get("not_before"),
        "expires-at": chosen.get("expires_at"),
        "timeout": None if "timeout" not in chosen else duration_text(chosen["timeout"]),
        "retries": retry["max_attempts"],
        "base-delay": duration_text(retry["base_delay"]),
        "on-lost": chosen["on_lost"],
        "on-error": chosen["on_error"],
        "on-shutdown": chosen.get("on_shutdown"),
    }
    found = ["--hold"] if chosen.get("hold") else []
    found += [f"--{name}={value}" for name, value in plain.items() if value is not None]
    found += [f"--resource={name}" for name in chosen.get("resources", ())]
    return [*found, *(f"--budget={meter}={json.dumps(cap)}" for meter, cap in chosen.get("budget", {}).items())]

"""Tasks, statistics, log pages and artifacts as JSON of the API."""

from __future__ import annotations

import inspect
import json
import operator
import re
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

from headway.api.schemas.jobs import Json, job_json, line_json, time_or_none, worker_json
from headway.api.schemas.queue import pause_json, target_json, waiting_json
from headway.engine.client.apply import Applying
from headway.engine.monitoring.overview import Overview
from headway.engine.tasks.registry import TaskSpec
from headway.model.access.authority import ADMIN_TASKS
from headway.model.jobs.job import Options
from headway.store.jobs.views import Artifact, LogLine, SeenTask
from headway.store.stats import Spread, Stats
from headway.store.worker_views import WorkerView

_FORWARD = re.compile(r"ForwardRef\(('[^']*')[^()]*\)")


def task_json(name: str, seen: SeenTask | None, here: TaskSpec | None, told: tuple[int, str]) -> Json:
    """**Task** of the API. `params` is null if only other processes have the task."""
    priority, text = told
    options = Options.parse(text)
    return {
        "task": name,
        "description": _first_line(here),
        "priority": priority,
        "timeout": options.timeout,
        "retry_policy": json.loads(text).get("retry"),
        "budget": dict(options.budget),
        "resources": list(options.resources),
        "on_lost": options.on_lost,
        "on_error": options.on_error,
        "on_shutdown": options.on_shutdown,
        "params": None if here is None else [_param(parameter) for parameter in here.signature.parameters],
        "open": None if here is None else here.signature.open,
        "direct": None if here is None else here.direct,
        "admin_only": name in ADMIN_TASKS,
        "seen_at": time_or_none(None if seen is None else seen.seen_at),
    }


def _first_line(here: TaskSpec | None) -> str | None:
    text = inspect.getdoc(here.function) if here is not None else None
    return text.strip().split("\n")[0] if text else None


def _param(parameter: inspect.Parameter) -> Json:
    required = parameter.default is inspect.Parameter.empty
    return {
        "name": parameter.name,
        "type": _type(parameter.annotation),
        "required": required,
        "default": None if required else _plain(parameter.default),
    }


def _type(annotation: Any) -> str | None:
    """Returns an annotation as it is written in code, without `Annotated`."""
    if annotation is inspect.Parameter.empty:
        return None
    if isinstance(annotation, str):
        return annotation
    bare = _bare(annotation)
    return "None" if bare is None or bare is type(None) else _FORWARD.sub(r"\1", inspect.formatannotation(bare))


def _bare(annotation: Any) -> Any:
    """Removes `Annotated` at any depth.

    A forward reference is kept, because it may not resolve here.
    """
    if isinstance(annotation, list):  # the params of a Callable
        return [_bare(part) for part in annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _bare(parts[0])
    bare = tuple(_bare(part) for part in parts)
    if bare == parts:
        return annotation
    return reduce(operator.or_, bare) if origin is UnionType else origin[bare]


def _plain(value: Any) -> Any:
    """Returns a default as JSON, or its repr if JSON cannot represent it."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return repr(value)


def shown_worker_json(worker: WorkerView, *, alive: bool, own: Collection[int] | None) -> Json:
    """**Worker** of the API; jobs that are not in `own` have no id and no task."""
    found = worker_json(worker, alive=alive)
    if own is not None:
        for job in found["running"]:
            if job["job_id"] not in own:
                job.update(job_id=None, task=None)
    return found


def overview_json(seen: Overview, own: Collection[int] | None = None) -> Json:
    """**Overview** of the API.

    `own` holds the jobs that may be named; None means all.
    """
    wait = seen.counts.longest_wait
    return {
        "at": time_or_none(seen.now),
        "counts": seen.counts.by_status,
        "counts_at_least": seen.counts.at_least,
        "finished_since": time_or_none(seen.counts.since),
        "oldest_wait": {"job_id": wait[0], "queued_at": time_or_none(wait[1])} if wait else None,
        "queue": pause_json(seen.pause, seen.everybody),
        "blocked_targets": [target_json(target) for target in seen.blocked],
        "workers": [shown_worker_json(worker, alive=alive, own=own) for worker, alive in seen.workers],
        "running": [job_json(view) for view in seen.running],
        "waiting": [waiting_json(waiting) for waiting in seen.waiting],
    }


def applied_json(found: Applying, secrets: Mapping[str, str], *, applied: bool) -> Json:
    """**Applied** of the API.

    `secrets` are those of the created webhooks, shown once.
    """
    items = [
        {"change": change.sign, "thing": change.thing, "name": change.name, "differences": list(change.words)}
        for change in found.changes
    ]
    more = {"secrets": dict(secrets)} if secrets else {}
    return {"items": items, "applied": applied, "left": list(found.left), "next": None, **more}


def stats_json(seen: Stats) -> Json:
    """**Stats** of the API: the last hour in spans of five minutes.

    Spans before `complete_since` are counted in part.
    """
    wait = seen.counts.longest_wait
    return {
        "at": time_or_none(seen.now),
        "counts": seen.counts.by_status,
        "counts_at_least": seen.counts.at_least,
        "finished_since": time_or_none(seen.counts.since),
        "oldest_wait": {"job_id": wait[0], "queued_at": time_or_none(wait[1])} if wait else None,
        "throughput": [
            {"since": time_or_none(span.since), "completed": span.completed, "failed": span.failed, "other": span.other}
            for span in seen.spans
        ],
        "complete_since": time_or_none(seen.complete_since),
        "waits": _spread(seen.waits),
        "durations": _spread(seen.durations),
    }


def _spread(spread: Spread) -> Json:
    return {"count": spread.count, "mean": spread.mean, "p50": spread.p50, "p90": spread.p90, "p99": spread.p99}


def log_json(lines: Sequence[LogLine], *, more: bool, after: int) -> Json:
    """**Log** of the API.

    `next` is null on the last page; `position` is where to continue later.
    """
    position = lines[-1].chunk if lines else after
    return {
        "items": [line_json(line) for line in lines],
        "next": str(position) if more else None,
        "position": position,
    }


def artifact_json(artifact: Artifact) -> Json:
    return {"name": artifact.name, "size": artifact.size, "sha256": artifact.sha256, "at": time_or_none(artifact.at)}

"""Tasks, figures, log pages and artifacts as JSON, by the field names of the API."""

from __future__ import annotations

import inspect
import json
import operator
import re
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

from headway.api.wire.jobs import Json, job_json, line_json, time_or_none, worker_json
from headway.api.wire.lanes import pause_json, target_json, waiting_json
from headway.engine.applying import Applying
from headway.engine.overview import Overview
from headway.engine.registry import TaskSpec
from headway.model.access import ADMIN_TASKS
from headway.model.job import Options
from headway.store.figures import Spread, Stats
from headway.store.reading import Artifact, Line, SeenTask
from headway.store.workers_reading import WorkerView

_FORWARD = re.compile(r"ForwardRef\(('[^']*')[^()]*\)")


def task_json(name: str, seen: SeenTask | None, here: TaskSpec | None, told: tuple[int, str]) -> Json:
    """A task somebody can run. `params` null: only other processes have it, and know what it takes."""
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
        "params": None if here is None else [_param(one) for one in here.signature.parameters],
        "open": None if here is None else here.signature.open,
        "direct": None if here is None else here.direct,
        "admin_only": name in ADMIN_TASKS,
        "seen_at": time_or_none(None if seen is None else seen.seen_at),
    }


def _first_line(here: TaskSpec | None) -> str | None:
    text = inspect.getdoc(here.function) if here is not None else None
    return text.strip().split("\n")[0] if text else None


def _param(one: inspect.Parameter) -> Json:
    required = one.default is inspect.Parameter.empty
    return {
        "name": one.name,
        "type": _type(one.annotation),
        "required": required,
        "default": None if required else _plain(one.default),
    }


def _type(annotation: Any) -> str | None:
    """As a person writes it: what `Annotated` adds is for the program."""
    if annotation is inspect.Parameter.empty:
        return None
    if isinstance(annotation, str):
        return annotation
    bare = _bare(annotation)
    return "None" if bare is None or bare is type(None) else _FORWARD.sub(r"\1", inspect.formatannotation(bare))


def _bare(annotation: Any) -> Any:
    """Without `Annotated`, at any depth. A name in quotes stays one: what it stands for may not be there."""
    if isinstance(annotation, list):  # the params of a Callable
        return [_bare(one) for one in annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _bare(parts[0])
    bare = tuple(_bare(one) for one in parts)
    if bare == parts:
        return annotation
    return reduce(operator.or_, bare) if origin is UnionType else origin[bare]


def _plain(value: Any) -> Any:
    """A default as far as JSON can say it."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return repr(value)


def shown_worker_json(worker: WorkerView, *, alive: bool, own: Collection[int] | None) -> Json:
    """A worker; the jobs of others than `own` are there without their names."""
    found = worker_json(worker, alive=alive)
    if own is not None:
        for one in found["running"]:
            if one["job_id"] not in own:
                one.update(job_id=None, task=None)
    return found


def overview_json(seen: Overview, own: Collection[int] | None = None) -> Json:
    """How things stand. `own`: the running jobs that may be named, if not all."""
    wait = seen.counts.longest_wait
    return {
        "at": time_or_none(seen.now),
        "counts": seen.counts.by_status,
        "counts_at_least": seen.counts.at_least,
        "finished_since": time_or_none(seen.counts.since),
        "oldest_wait": {"job_id": wait[0], "queued_at": time_or_none(wait[1])} if wait else None,
        "queue": pause_json(seen.pause, seen.everybody),
        "blocked_targets": [target_json(one) for one in seen.blocked],
        "workers": [shown_worker_json(worker, alive=alive, own=own) for worker, alive in seen.workers],
        "running": [job_json(view) for view in seen.running],
        "waiting": [waiting_json(one) for one in seen.waiting],
    }


def applied_json(found: Applying, secrets: Mapping[str, str], *, applied: bool) -> Json:
    """What a file meant for each thing. `secrets` are those of the webhooks it made, shown this once."""
    items = [
        {"change": one.sign, "thing": one.thing, "name": one.name, "differences": list(one.words)}
        for one in found.changes
    ]
    more = {"secrets": dict(secrets)} if secrets else {}
    return {"items": items, "applied": applied, "left": list(found.left), "next": None, **more}


def stats_json(seen: Stats) -> Json:
    """The last hour in spans of five minutes; before `complete_since` they are counted in part."""
    wait = seen.counts.longest_wait
    return {
        "at": time_or_none(seen.now),
        "counts": seen.counts.by_status,
        "counts_at_least": seen.counts.at_least,
        "finished_since": time_or_none(seen.counts.since),
        "oldest_wait": {"job_id": wait[0], "queued_at": time_or_none(wait[1])} if wait else None,
        "throughput": [
            {"since": time_or_none(one.since), "completed": one.completed, "failed": one.failed, "other": one.other}
            for one in seen.spans
        ],
        "complete_since": time_or_none(seen.complete_since),
        "waits": _spread(seen.waits),
        "durations": _spread(seen.durations),
    }


def _spread(one: Spread) -> Json:
    return {"count": one.count, "mean": one.mean, "p50": one.p50, "p90": one.p90, "p99": one.p99}


def log_json(lines: Sequence[Line], *, more: bool, after: int) -> Json:
    """Lines with where to go on: `next` while there are more, `position` also at the end."""
    position = lines[-1].chunk if lines else after
    return {
        "items": [line_json(line) for line in lines],
        "next": str(position) if more else None,
        "position": position,
    }


def artifact_json(one: Artifact) -> Json:
    return {"name": one.name, "size": one.size, "sha256": one.sha256, "at": time_or_none(one.at)}

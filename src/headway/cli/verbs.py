"""What people do to jobs: `jobs cancel`, `interrupt`, `resume`, `resolve`, `release`, `retry`, `edit`, `move`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headway.cli.call import Call, command
from headway.cli.choosing import (
    LARGEST,
    By,
    GroupNumber,
    Id,
    Ids,
    Key,
    Kind,
    ScheduleName,
    Search,
    Since,
    Status,
    TargetName,
    TaskName,
    Until,
    Yes,
    apply,
    choose,
    number_or_pair,
)

NONE: list[str] = []
Pairs = Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Params to set.", show_default=False)]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID|NAME=VALUE", help="Jobs by number; params to set.", show_default=False, parser=number_or_pair
    ),
]
Params = Annotated[str | None, typer.Option(metavar="JSON|@FILE|-", help="All params at once; - reads stdin.")]
Priority = Annotated[int | None, typer.Option(metavar="0..100", help="Another priority.")]
Budget = Annotated[list[str], typer.Option(metavar="METER=CAP", help="Another budget.")]


def _plain(family: typer.Typer, verb: str, said: str, help: str) -> None:
    """A verb that needs nothing but its jobs."""

    @command(family, verb, help=help)
    def act(
        call: Call,
        ids: Ids = None,
        status: Status = NONE,
        task: TaskName = None,
        key: Key = None,
        kind: Kind = None,
        by: By = None,
        since: Since = None,
        until: Until = None,
        search: Search = None,
        target: TargetName = None,
        group: GroupNumber = None,
        schedule: ScheduleName = None,
        yes: Yes = False,
    ) -> int:
        given = _given(status, task, key, kind, by, since, until, search, target, group, schedule)
        with call.desk() as desk:
            chosen = choose(call, desk, verb, ids or [], given, yes=yes)
            return apply(call, desk, chosen, getattr(desk.client, verb), said)


def _given(*values: Any) -> dict[str, Any]:
    names = ("status", "task", "key", "kind", "by", "since", "until", "search", "target", "group", "schedule")
    return dict(zip(names, values, strict=True))


def register(jobs: typer.Typer) -> None:
    _plain(jobs, "cancel", "cancelled", "End jobs: waiting ones at once, running ones as soon as they stop.")
    _plain(jobs, "interrupt", "interrupted", "Pause running jobs; put waiting ones on hold.")
    _plain(jobs, "release", "released", "Give PAUSED or ERROR jobs up: FAILED, without a retry.")

    @command(jobs, "resume")
    def resume(
        call: Call,
        ids: Ids = None,
        status: Status = NONE,
        task: TaskName = None,
        key: Key = None,
        kind: Kind = None,
        by: By = None,
        since: Since = None,
        until: Until = None,
        search: Search = None,
        target: TargetName = None,
        group: GroupNumber = None,
        schedule: ScheduleName = None,
        yes: Yes = False,
        budget: Budget = NONE,
    ) -> int:
        """Let PAUSED or ERROR jobs, and jobs on hold, go on."""
        from headway.cli import parsing

        caps = parsing.budget(budget)
        given = _given(status, task, key, kind, by, since, until, search, target, group, schedule)
        with call.desk() as desk:
            chosen = choose(call, desk, "resume", ids or [], given, yes=yes)
            return apply(call, desk, chosen, lambda job_id: desk.client.resume(job_id, caps), "resumed")

    @command(jobs, "retry")
    def retry(
        call: Call,
        words: Words = None,
        status: Status = NONE,
        task: TaskName = None,
        key: Key = None,
        kind: Kind = None,
        by: By = None,
        since: Since = None,
        until: Until = None,
        search: Search = None,
        target: TargetName = None,
        group: GroupNumber = None,
        schedule: ScheduleName = None,
        yes: Yes = False,
        params: Params = None,
        priority: Priority = None,
        budget: Budget = NONE,
    ) -> int:
        """Run failed, PAUSED or ERROR jobs again, each as a new job. A retry that waits is brought forward."""
        import json

        from headway.cli import parsing

        pairs = [word for word in words or [] if "=" in word]
        ids = [int(word) for word in words or [] if "=" not in word]
        others = parsing.params(pairs, params) if pairs or params is not None else None
        caps = parsing.budget(budget)
        given = _given(status, task, key, kind, by, since, until, search, target, group, schedule)
        with call.desk(tasks=others is not None) as desk:  # params are checked by the app's own tasks
            chosen = choose(call, desk, "retry", ids, given, yes=yes)

            def act(job_id: int) -> Any:
                wished = others
                if pairs and params is None:  # single params are set, the others stay as they were
                    wished = {**json.loads(desk.client.get(job_id).params), **(others or {})}
                # Who names a job means it; a filter fits all jobs of a chain, and only the last stands for the work.
                return desk.client.retry(job_id, params=wished, priority=priority, budget=caps, again=bool(ids))

            return apply(call, desk, chosen, act, "is the retry")

    @command(jobs, "resolve")
    def resolve(
        call: Call,
        ids: Ids = None,
        status: Status = NONE,
        task: TaskName = None,
        key: Key = None,
        kind: Kind = None,
        by: By = None,
        since: Since = None,
        until: Until = None,
        search: Search = None,
        target: TargetName = None,
        group: GroupNumber = None,
        schedule: ScheduleName = None,
        yes: Yes = False,
        result: Annotated[str, typer.Option(metavar="JSON", help="The result to record.")] = "null",
    ) -> int:
        """Record PAUSED or ERROR jobs as COMPLETED, with a result of yours."""
        from headway.model.values import from_json

        value = from_json(result, field="result")
        given = _given(status, task, key, kind, by, since, until, search, target, group, schedule)
        with call.desk() as desk:
            chosen = choose(call, desk, "resolve", ids or [], given, yes=yes)
            return apply(call, desk, chosen, lambda job_id: desk.client.resolve(job_id, value), "resolved")

    @command(jobs, "edit")
    def edit(
        call: Call,
        job_id: Id,
        pairs: Pairs = None,
        params: Params = None,
        priority: Priority = None,
        not_before: Annotated[str | None, typer.Option(metavar="WHEN", help="Start at a time, or in 10m.")] = None,
        expires_at: Annotated[str | None, typer.Option(metavar="WHEN", help="Skip it unless started by then.")] = None,
    ) -> int:
        """Change a job that waits: its params (until its first start), priority or times."""
        import json

        from headway.cli import parsing
        from headway.errors import BadInput

        start, end = parsing.later(not_before, field="not_before"), parsing.later(expires_at, field="expires_at")
        if not pairs and (params, priority, start, end) == (None, None, None, None):
            raise BadInput("edit what? Give name=value, --params, --priority, --not-before or --expires-at")
        with call.desk(tasks=bool(pairs) or params is not None) as desk:  # params are checked by the app's own tasks
            change: dict[str, Any] = {"priority": priority, "not_before": start, "expires_at": end}
            if pairs or params is not None:
                change["params"] = parsing.params(pairs or [], params)
            if pairs and params is None:  # single params are set, the others stay as they were when we looked
                job = desk.client.get(job_id)
                change |= {"params": {**json.loads(job.params), **change["params"]}, "if_version": job.version}
            return apply(call, desk, [job_id], lambda number: desk.client.edit(number, **change), "changed")

    @command(jobs, "move")
    def move(
        call: Call,
        job_id: Id,
        to: Annotated[
            str | None, typer.Option(metavar="top|bottom|front", help="An end of its priority; front is before all.")
        ] = None,
        before: Annotated[
            int | None, typer.Option(metavar="ID", help="Directly before another job.", max=LARGEST)
        ] = None,
        after: Annotated[
            int | None, typer.Option(metavar="ID", help="Directly after another job.", max=LARGEST)
        ] = None,
        rank: Annotated[
            int | None, typer.Option(metavar="N", help="To this place in the queue.", max=1_000_000)
        ] = None,
    ) -> int:
        """Give a waiting job another place in the queue."""
        place: dict[str, Any] = {"to": to, "before": before, "after": after, "rank": rank}
        with call.desk() as desk:
            return apply(call, desk, [job_id], lambda number: desk.client.move(number, **place), "moved")

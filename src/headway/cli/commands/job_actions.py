"""Changes jobs: `jobs cancel`, `interrupt`, `resume`, `resolve`, `release`, `retry`, `edit`, `move`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headway.cli.command import Invocation, command
from headway.cli.job_selection import LARGEST, Id, Ids, JobFilterOptions, Yes, apply, choose, number_or_pair

NONE: list[str] = []
Pairs = Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Params to set.", show_default=False)]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID|NAME=VALUE", help="Job numbers; params to set.", show_default=False, parser=number_or_pair
    ),
]
Params = Annotated[str | None, typer.Option(metavar="JSON|@FILE|-", help="New params as a whole; - reads stdin.")]
Priority = Annotated[int | None, typer.Option(metavar="0..100", help="New priority.")]
Budget = Annotated[list[str], typer.Option(metavar="METER=CAP", help="New budget; may be repeated.")]


def _plain(family: typer.Typer, verb: str, outcome: str, help: str) -> None:
    """Declares a verb that takes only a selection of jobs."""

    @command(family, verb, help=help)
    def act(
        call: Invocation,
        filters: JobFilterOptions,
        ids: Ids = None,
        yes: Yes = False,
    ) -> int:
        with call.backend() as backend:
            chosen = choose(call, backend, verb, ids or [], filters, yes=yes)
            return apply(call, backend, chosen, getattr(backend.jobs, verb), outcome)


def register(jobs: typer.Typer) -> None:
    _plain(jobs, "cancel", "cancelled", "Cancel jobs: waiting jobs at once, running jobs as soon as they stop.")
    _plain(jobs, "interrupt", "interrupted", "Pause running jobs; put waiting jobs on hold.")
    _plain(jobs, "release", "released", "End PAUSED or ERROR jobs as FAILED, without a retry.")

    @command(jobs, "resume")
    def resume(
        call: Invocation,
        filters: JobFilterOptions,
        ids: Ids = None,
        yes: Yes = False,
        budget: Budget = NONE,
    ) -> int:
        """Resume PAUSED or ERROR jobs, and jobs on hold."""
        from headway.cli import arguments

        caps = arguments.budget(budget)
        with call.backend() as backend:
            chosen = choose(call, backend, "resume", ids or [], filters, yes=yes)
            return apply(call, backend, chosen, lambda job_id: backend.jobs.resume(job_id, caps), "resumed")

    @command(jobs, "retry")
    def retry(
        call: Invocation,
        filters: JobFilterOptions,
        words: Words = None,
        yes: Yes = False,
        params: Params = None,
        priority: Priority = None,
        budget: Budget = NONE,
    ) -> int:
        """Retry FAILED, PAUSED or ERROR jobs, each as a new job. A waiting automatic retry is brought forward."""
        from headway.cli import arguments

        pairs = [word for word in words or [] if "=" in word]
        ids = [int(word) for word in words or [] if "=" not in word]
        others = arguments.params(pairs, params) if pairs or params is not None else None
        caps = arguments.budget(budget)
        with call.backend(tasks=others is not None) as backend:  # the app's tasks check new params
            chosen = choose(call, backend, "retry", ids, filters, yes=yes)

            def act(job_id: int) -> int:
                new_params = others
                if pairs and params is None:  # only the given params change
                    new_params = {**backend.jobs.get(job_id)["params"], **(others or {})}
                # A job named by number is always retried. A filter matches every job of a retry chain, of which only
                # the last may be retried.
                return backend.jobs.retry(job_id, params=new_params, priority=priority, budget=caps, again=bool(ids))

            return apply(call, backend, chosen, act, "is the retry")

    @command(jobs, "resolve")
    def resolve(
        call: Invocation,
        filters: JobFilterOptions,
        ids: Ids = None,
        yes: Yes = False,
        result: Annotated[str, typer.Option(metavar="JSON", help="Result to record.")] = "null",
    ) -> int:
        """Record PAUSED or ERROR jobs as COMPLETED, with the given result."""
        from headway.model.values.json import from_json

        value = from_json(result, field="result")
        with call.backend() as backend:
            chosen = choose(call, backend, "resolve", ids or [], filters, yes=yes)
            return apply(call, backend, chosen, lambda job_id: backend.jobs.resolve(job_id, value), "resolved")

    @command(jobs, "edit")
    def edit(
        call: Invocation,
        job_id: Id,
        pairs: Pairs = None,
        params: Params = None,
        priority: Priority = None,
        not_before: Annotated[
            str | None, typer.Option(metavar="WHEN", help="Earliest start: a time, or 10m from now.")
        ] = None,
        expires_at: Annotated[
            str | None, typer.Option(metavar="WHEN", help="Skip the job if it has not started by then.")
        ] = None,
    ) -> int:
        """Change a waiting job: its params (until its first start), priority or times."""
        from headway.cli import arguments
        from headway.errors import BadInput

        start, end = arguments.later(not_before, field="not_before"), arguments.later(expires_at, field="expires_at")
        if not pairs and (params, priority, start, end) == (None, None, None, None):
            raise BadInput("no change given: give name=value, --params, --priority, --not-before or --expires-at")
        with call.backend(tasks=bool(pairs) or params is not None) as backend:  # the app's tasks check new params
            change: dict[str, Any] = {"priority": priority, "not_before": start, "expires_at": end}
            if pairs or params is not None:
                change["params"] = arguments.params(pairs or [], params)
            if pairs and params is None:  # only the given params change; the version guards the others
                job = backend.jobs.get(job_id)
                change |= {"params": {**job["params"], **change["params"]}, "if_version": job["version"]}
            return apply(call, backend, [job_id], lambda number: backend.jobs.edit(number, **change), "changed")

    @command(jobs, "move")
    def move(
        call: Invocation,
        job_id: Id,
        to: Annotated[
            str | None,
            typer.Option(metavar="top|bottom|front", help="Top or bottom of its priority, or front of the queue."),
        ] = None,
        before: Annotated[int | None, typer.Option(metavar="ID", help="Directly before this job.", max=LARGEST)] = None,
        after: Annotated[int | None, typer.Option(metavar="ID", help="Directly after this job.", max=LARGEST)] = None,
        rank: Annotated[int | None, typer.Option(metavar="N", help="To this rank in the queue.", max=1_000_000)] = None,
    ) -> int:
        """Move a waiting job to another position in the queue."""
        place: dict[str, Any] = {"to": to, "before": before, "after": after, "rank": rank}
        with call.backend() as backend:
            return apply(call, backend, [job_id], lambda number: backend.jobs.move(number, **place), "moved")

"""The options of a new job, shared by `run`, `sh` and `templates`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from headway.cli.command import OptionGroup

Target = Annotated[
    str | None, typer.Option(metavar="NAME", help="Target the job works on; one job per target at a time.")
]
Resources = Annotated[
    list[str], typer.Option("--resource", metavar="NAME", help="Resource the job needs; may be repeated.")
]
Timeout = Annotated[str | None, typer.Option(metavar="DURATION", help="Longest running time; beyond it the job fails.")]


@dataclass(frozen=True)
class StoredOptions(OptionGroup):
    """The options that a template keeps too."""

    priority: Annotated[int | None, typer.Option(metavar="0..100", help="Priority; higher starts first.")] = None
    target: Target = None
    resource: Resources = field(default_factory=list)
    timeout: Timeout = None
    retries: Annotated[int | None, typer.Option(metavar="N", help="Number of automatic retries after a failure.")] = (
        None
    )
    base_delay: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Delay before the first retry; it doubles with each further one."),
    ] = None
    budget: Annotated[
        list[str], typer.Option(metavar="METER=CAP", help="Cap on a meter, like tokens=500000; may be repeated.")
    ] = field(default_factory=list)
    on_lost: Annotated[
        str | None, typer.Option(metavar="retry|hold|fail", help="Action when the job is lost with its worker.")
    ] = None
    on_error: Annotated[
        str | None, typer.Option(metavar="hold|fail", help="Hold the target after the last failure, or fail the job.")
    ] = None
    on_shutdown: Annotated[
        str | None, typer.Option(metavar="retry|pause|resume", help="Action when a shutdown stops the job.")
    ] = None

    def fields(self) -> dict[str, Any]:
        """Returns the given options by the names of a template's fields."""
        from headway.cli import arguments

        retry = {"max_attempts": self.retries, "base_delay": self.base_delay}
        return present(
            {
                "priority": self.priority,
                "target": self.target,
                "resources": self.resource or None,
                "timeout": self.timeout,
                "retry_policy": present(retry) or None,
                "budget": arguments.budget(self.budget),
                "on_lost": self.on_lost,
                "on_error": self.on_error,
                "on_shutdown": self.on_shutdown,
            }
        )


@dataclass(frozen=True)
class NewJobOptions(StoredOptions):
    """All options of a new job."""

    delay: Annotated[str | None, typer.Option(metavar="DURATION", help="Delay before the start, like 10m.")] = None
    not_before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Earliest start, like 2026-03-01T09:00:00Z.")
    ] = None
    expires_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Skip the job if it has not started by then.")
    ] = None
    key: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Uniqueness key; one unfinished job per task and key.")
    ] = None
    hold: Annotated[bool, typer.Option("--hold", help="Create the job on hold; `jobs resume` lets it start.")] = False
    webhook_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Address that receives the events of the job.")
    ] = None
    webhook_event: Annotated[
        list[str], typer.Option(metavar="KIND", help="Event for --webhook-url, like job.run.failed; may be repeated.")
    ] = field(default_factory=list)

    def for_template(self) -> dict[str, Any]:
        """Returns the given options of a job of a template."""
        own = {"delay": self.delay, "not_before": self.not_before, "expires_at": self.expires_at, "key": self.key}
        hook = {"webhook_url": self.webhook_url, "webhook_events": self.webhook_event or None}
        return self.fields() | present({**own, **hook, "hold": self.hold or None})

    def for_task(self) -> dict[str, Any]:
        """Returns the given options in the form that `using()` takes."""
        given = self.for_template()
        if "retry_policy" in given:
            given["retry"] = given.pop("retry_policy")
        return given


def present(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options that were given."""
    return {name: option for name, option in options.items() if option is not None}

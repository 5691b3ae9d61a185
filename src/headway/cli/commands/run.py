"""`run` and `sh`: creates a job, and follows it if asked to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.command import Invocation, command
from headway.cli.job_options import NewJobOptions

if TYPE_CHECKING:
    from headway.cli.backend.base import Backend
    from headway.cli.output import Json

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Show the log and progress until the job ends.")]
AppOption = Annotated[str | None, typer.Option("--app", metavar="MODULE:APP", help="App that declares the tasks.")]


def register(root: typer.Typer) -> None:
    @command(root, "run")
    def run(
        call: Invocation,
        options: NewJobOptions,
        task: Annotated[
            str | None, typer.Argument(metavar="TASK", help="Name of the task.", show_default=False)
        ] = None,
        pairs: Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Params of the job.")] = None,
        params: Annotated[
            str | None, typer.Option(metavar="JSON|@FILE|-", help="Params as a whole; - reads stdin.")
        ] = None,
        template: Annotated[str | None, typer.Option(metavar="NAME", help="Template to use instead of a task.")] = None,
        follow: Follow = False,
        app: AppOption = None,
    ) -> int:
        """Create a job of a task. A value that is not JSON is taken as text: words=800 topic=fog"""
        from headway.cli import arguments
        from headway.errors import BadInput
        from headway.model.values.names import check_task_name

        if template is not None:  # the first word is then a param, not a task
            values = arguments.params([*([task] if task else []), *(pairs or [])], params)
            return make_of_template(call, app, template, values, options, follow=follow)
        given = options.for_task()
        if task is None:
            raise BadInput("no task given: name a task, or a template with --template", field="task")
        check_task_name(task)
        with call.new_backend(app, task=task, resources=given.get("resources", ())) as backend:
            return enqueue(call, backend, task, arguments.params(pairs or [], params), given, follow=follow)

    @command(root, "sh", context_settings={"allow_interspersed_args": False})
    def sh(
        call: Invocation,
        argv: Annotated[list[str], typer.Argument(metavar="CMD", help="Program and its arguments.")],
        options: NewJobOptions,
        follow: Follow = False,
        cwd: Annotated[str | None, typer.Option(metavar="FOLDER", help="Working directory of the program.")] = None,
        shell: Annotated[bool, typer.Option("--shell", help="Run the command as one line of /bin/sh.")] = False,
    ) -> int:
        """Create a job that runs a program: headway sh -- rsync -a from to"""
        params: dict[str, Any] = {"argv": argv}
        params |= {"cwd": cwd} if cwd is not None else {}
        params |= {"shell": True} if shell else {}
        given = options.for_task()
        with call.new_backend(bare=True, task="command", resources=given.get("resources", ())) as backend:
            return enqueue(call, backend, "command", params, given, follow=follow)


def enqueue(
    call: Invocation, backend: Backend, task: str, params: dict[str, Any], given: dict[str, Any], *, follow: bool
) -> int:
    job, created = backend.jobs.make(task, params, given)
    return _follow(call, backend, job["job_id"]) if follow else _answer(call, backend, job, created)


def make_of_template(
    call: Invocation, app: str | None, template: str, params: dict[str, Any], options: NewJobOptions, *, follow: bool
) -> int:
    """Creates a job of a template in an existing database; returns the exit code."""
    from headway.cli.job_selection import number_or_name

    given = options.for_template()
    with call.backend(app, tasks=True) as backend:
        job, created = backend.jobs.make_of_template(number_or_name(template), params, given)
        return _follow(call, backend, job["job_id"]) if follow else _answer(call, backend, job, created)


def _answer(call: Invocation, backend: Backend, job: Json, created: bool) -> int:
    call.out.answer(job, lambda: [str(job["job_id"])], notes=_next_steps(backend, job["job_id"], created))
    return 0


def _next_steps(backend: Backend, number: int, created: bool) -> Iterator[str]:
    from headway.text.findings import NO_WORKER

    if not created:
        yield f"job {number} has this key: no new job was created"
    if backend.alone():
        yield NO_WORKER.line
    else:
        yield f"show it with `headway jobs show {number}`, follow it with `headway jobs logs -f {number}`"


def _follow(call: Invocation, backend: Backend, job_id: int) -> int:
    from headway.cli.follow import Follower, succeeded
    from headway.cli.tables.jobs import ending, note
    from headway.errors import Unreachable
    from headway.model.jobs.states import State

    follower = Follower(backend, call.out, job_id)
    try:
        job = follower.follow()
    except KeyboardInterrupt:
        number = follower.job_id
        call.out.say(f"job {number} continues: headway jobs logs -f {number}, headway jobs cancel {number}")
        return 130
    except Unreachable:
        call.out.say(f"job {follower.job_id} is stored: follow it later with `headway jobs logs -f {follower.job_id}`")
        raise
    if call.out.as_json:
        call.out.data(job)
    elif job["run"] is not None and job["run"]["result"] is not None:
        call.out.data(job["run"]["result"])
    number, status = job["job_id"], job["status"]
    why = ending(job) if job["exhausted"] or succeeded(job) else note(job, backend.now())
    call.out.say(f"job {number} {status}" + (f": {why}" if why else ""))
    if not State[status].terminal:
        call.out.say(f"it needs a decision: see `headway jobs explain {number}`")
    return 0 if succeeded(job) else 1

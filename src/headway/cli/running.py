"""`run` and `sh`: make a job, and follow it if asked to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.call import Call, command

if TYPE_CHECKING:
    from headway.cli.call import Desk

NONE: list[str] = []
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Show its log and progress until it ends.")]
Priority = Annotated[int | None, typer.Option(metavar="0..100", help="Higher goes first.")]
Delay = Annotated[str | None, typer.Option(metavar="DURATION", help="Start after a while, like 10m.")]
NotBefore = Annotated[str | None, typer.Option(metavar="TIME", help="Start at a time, like 2026-03-01T09:00:00Z.")]
ExpiresAt = Annotated[str | None, typer.Option(metavar="TIME", help="Skip it unless it starts before.")]
Key = Annotated[str | None, typer.Option(metavar="TEXT", help="Only one unfinished job of the task has this key.")]
Timeout = Annotated[str | None, typer.Option(metavar="DURATION", help="Fail it when it runs longer.")]
Retries = Annotated[int | None, typer.Option(metavar="N", help="Automatic retries when it fails.")]
BaseDelay = Annotated[str | None, typer.Option(metavar="DURATION", help="Wait before the first retry; then doubling.")]
Budget = Annotated[list[str], typer.Option(metavar="METER=CAP", help="A cap on what it may spend.")]
Hold = Annotated[bool, typer.Option("--hold", help="Do not start it before it is resumed.")]
OnLost = Annotated[str | None, typer.Option(metavar="retry|hold|fail", help="What to do when its worker dies.")]
OnError = Annotated[str | None, typer.Option(metavar="hold|fail", help="What its last failure does to its target.")]
Target = Annotated[str | None, typer.Option(metavar="NAME", help="What it touches: one job at a time does.")]
Resources = Annotated[
    list[str], typer.Option("--resource", metavar="NAME", help="A pool it needs a place in; may be repeated.")
]
AppOption = Annotated[str | None, typer.Option("--app", metavar="MODULE:APP", help="Where the tasks are.")]


def wishes(
    *,
    priority: int | None,
    delay: str | None,
    not_before: str | None,
    expires_at: str | None,
    key: str | None,
    timeout: str | None,
    retries: int | None,
    base_delay: str | None,
    budget: list[str],
    hold: bool,
    on_lost: str | None,
    on_error: str | None,
    target: str | None,
    resources: list[str],
) -> dict[str, Any]:
    """The options of a job, those that were given, as `using()` takes them."""
    from headway.cli import parsing

    retry = {"max_attempts": retries, "base_delay": base_delay}
    given = {
        "priority": priority,
        "delay": delay,
        "not_before": not_before,
        "expires_at": expires_at,
        "key": key,
        "timeout": timeout,
        "budget": parsing.budget(budget),
        "on_lost": on_lost,
        "on_error": on_error,
        "target": target,
        "resources": resources or None,
        "hold": hold or None,
        "retry": {name: wish for name, wish in retry.items() if wish is not None} or None,
    }
    return {name: wish for name, wish in given.items() if wish is not None}


def register(root: typer.Typer) -> None:
    @command(root, "run")
    def run(
        call: Call,
        task: Annotated[
            str | None, typer.Argument(metavar="TASK", help="The name of a task.", show_default=False)
        ] = None,
        pairs: Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Its params.")] = None,
        params: Annotated[
            str | None, typer.Option(metavar="JSON|@FILE|-", help="All params at once; - reads stdin.")
        ] = None,
        template: Annotated[
            str | None, typer.Option(metavar="NAME", help="Make it of this template, instead of a task.")
        ] = None,
        follow: Follow = False,
        priority: Priority = None,
        delay: Delay = None,
        not_before: NotBefore = None,
        expires_at: ExpiresAt = None,
        key: Key = None,
        timeout: Timeout = None,
        retries: Retries = None,
        base_delay: BaseDelay = None,
        budget: Budget = NONE,
        hold: Hold = False,
        on_lost: OnLost = None,
        on_error: OnError = None,
        target: Target = None,
        resource: Resources = NONE,
        app: AppOption = None,
    ) -> int:
        """Make a job of a task. Values are JSON where they are JSON, otherwise text: words=800 topic=fog"""
        from headway.cli import parsing
        from headway.errors import BadInput
        from headway.model.values import check_task_name

        given = wishes(
            priority=priority,
            delay=delay,
            not_before=not_before,
            expires_at=expires_at,
            key=key,
            timeout=timeout,
            retries=retries,
            base_delay=base_delay,
            budget=budget,
            hold=hold,
            on_lost=on_lost,
            on_error=on_error,
            target=target,
            resources=resource,
        )
        if template is not None:  # there is no task then: what stands in its place is a param
            values = parsing.params([*([task] if task else []), *(pairs or [])], params)
            return make_of_template(call, app, template, values, given, follow=follow)
        if task is None:
            raise BadInput("run what? Name a task, or a template with --template", field="task")
        check_task_name(task)
        with call.workshop(app, task=task, resources=given.get("resources", ())) as desk:
            return enqueue(call, desk, task, parsing.params(pairs or [], params), given, follow=follow)

    @command(root, "sh", context_settings={"allow_interspersed_args": False})
    def sh(
        call: Call,
        argv: Annotated[list[str], typer.Argument(metavar="CMD", help="A program and its arguments.")],
        follow: Follow = False,
        cwd: Annotated[str | None, typer.Option(metavar="FOLDER", help="Where it runs.")] = None,
        shell: Annotated[bool, typer.Option("--shell", help="Hand it to /bin/sh as one line.")] = False,
        priority: Priority = None,
        delay: Delay = None,
        not_before: NotBefore = None,
        expires_at: ExpiresAt = None,
        key: Key = None,
        timeout: Timeout = None,
        retries: Retries = None,
        base_delay: BaseDelay = None,
        budget: Budget = NONE,
        hold: Hold = False,
        on_lost: OnLost = None,
        on_error: OnError = None,
        target: Target = None,
        resource: Resources = NONE,
    ) -> int:
        """Make a job of a program: headway sh -- rsync -a from to"""
        params: dict[str, Any] = {"argv": argv}
        params |= {"cwd": cwd} if cwd is not None else {}
        params |= {"shell": True} if shell else {}
        given = wishes(
            priority=priority,
            delay=delay,
            not_before=not_before,
            expires_at=expires_at,
            key=key,
            timeout=timeout,
            retries=retries,
            base_delay=base_delay,
            budget=budget,
            hold=hold,
            on_lost=on_lost,
            on_error=on_error,
            target=target,
            resources=resource,
        )
        with call.workshop(bare=True, task="command", resources=given.get("resources", ())) as desk:
            return enqueue(call, desk, "command", params, given, follow=follow)


def enqueue(call: Call, desk: Desk, task: str, params: dict[str, Any], given: dict[str, Any], *, follow: bool) -> int:
    job_id, created = desk.make(task, params, given)
    return _follow(call, desk, job_id) if follow else _answer(call, desk, job_id, created)


def make_of_template(
    call: Call, app: str | None, template: str, params: dict[str, Any], given: dict[str, Any], *, follow: bool
) -> int:
    """A template is in a database, so there is one."""
    from headway.cli.choosing import number_or_name

    if "retry" in given:  # by the name that templates have for it
        given = {**given, "retry_policy": given["retry"]}
        del given["retry"]
    with call.desk(app, tasks=True) as desk:
        job_id, created = desk.make_of_template(number_or_name(template), params, given)
        return _follow(call, desk, job_id) if follow else _answer(call, desk, job_id, created)


def _answer(call: Call, desk: Desk, job_id: int, created: bool) -> int:
    from headway.api.wire.jobs import job_json

    view, alone = desk.view(job_id), desk.alone()
    if call.out.as_json:
        call.out.data(job_json(view))
        return 0
    call.out.show(str(job_id))
    if not created:
        call.out.say(f"the key is taken by job {job_id}: no new job was made")
    if alone:
        call.out.say("no worker is alive: start one with `headway work`, or `headway up`")
    else:
        call.out.say(f"see it with `headway jobs show {job_id}`, follow it with `headway jobs logs -f {job_id}`")
    return 0


def _follow(call: Call, desk: Desk, job_id: int) -> int:
    from headway.api.wire.jobs import job_json
    from headway.cli.following import Follower, succeeded
    from headway.cli.tables import note
    from headway.errors import Unreachable

    follower = Follower(desk, call.out, job_id)
    try:
        view = follower.follow()
    except KeyboardInterrupt:
        number = follower.job_id
        call.out.say(f"job {number} goes on: headway jobs logs -f {number}, headway jobs cancel {number}")
        return 130
    except Unreachable:
        call.out.say(f"job {follower.job_id} is stored: follow it later with headway jobs logs -f {follower.job_id}")
        raise
    if call.out.as_json:
        call.out.data(job_json(view))
    elif view.run is not None and view.run.result is not None:
        call.out.lines(json.dumps(json.loads(view.run.result), ensure_ascii=False, indent=2))
    job = view.job
    why = note(view, desk.now()) if not succeeded(view) else job.reason or ""
    call.out.say(f"job {job.id} {job.status.name}" + (f": {why}" if why else ""))
    if not job.status.terminal:
        call.out.say(f"it waits for you: headway jobs explain {job.id}")
    return 0 if succeeded(view) else 1

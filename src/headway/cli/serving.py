"""`up` and `work`: the composition root. Settings, database, loops, supervisor."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.call import Call, command

if TYPE_CHECKING:
    from headway.app import App
    from headway.engine.supervisor import Supervisor

AppOption = Annotated[str | None, typer.Option("--app", metavar="MODULE:APP", help="Where the tasks are.")]
Slots = Annotated[int | None, typer.Option(metavar="N", help="How many jobs it runs at once.")]
Tasks = Annotated[list[str], typer.Option(metavar="GLOB", help="Only these tasks, like 'story.*'; may be repeated.")]
Adopt = Annotated[
    bool, typer.Option("--adopt-settings", help="Write the limits of its settings even if other workers live.")
]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Exit 5 if the database cannot be reached, instead of waiting.")
]
Roles = Annotated[
    list[str],
    typer.Option(metavar="ROLE", help="api, scheduler, worker; with commas or repeated. Default: all."),
]
NONE: list[str] = []


def register(root: typer.Typer) -> None:
    @command(root, "up")
    def up(
        call: Call,
        app: AppOption = None,
        slots: Slots = None,
        tasks: Tasks = NONE,
        roles: Roles = NONE,
        host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where the HTTP server listens.")] = None,
        port: Annotated[int | None, typer.Option(metavar="PORT", help="Its port; 0 takes a free one.")] = None,
        adopt_settings: Adopt = False,
        no_wait: NoWait = False,
    ) -> int:
        """Start Headway here: serves HTTP, fires schedules, runs jobs, recovers what crashes left."""
        wanted = named_roles(roles)
        call.flags.update(slots=slots, host=host, port=port)
        return serve(call, app, roles=wanted, tasks=tasks, adopt=adopt_settings, wait=not no_wait)

    @command(root, "work")
    def work(
        call: Call,
        app: AppOption = None,
        slots: Slots = None,
        tasks: Tasks = NONE,
        burst: Annotated[bool, typer.Option("--burst", help="End when there is nothing left to do.")] = False,
        adopt_settings: Adopt = False,
        no_wait: NoWait = False,
    ) -> int:
        """Start a worker and nothing else."""
        call.flags["slots"] = slots
        return serve(call, app, roles=["worker"], tasks=tasks, burst=burst, adopt=adopt_settings, wait=not no_wait)


def named_roles(given: Sequence[str]) -> list[str]:
    from headway.composing import ROLES
    from headway.errors import BadInput

    names = [part.strip() for name in given for part in name.split(",")]
    for name in names:
        if name not in ROLES:
            raise BadInput(f"--roles: there is no role {name!r}: use {', '.join(ROLES)}", field="roles")
    return list(dict.fromkeys(names)) or list(ROLES)


def serve(
    call: Call,
    where: str | None,
    *,
    roles: Sequence[str],
    tasks: Sequence[str],
    burst: bool = False,
    adopt: bool,
    wait: bool,
) -> int:
    """Runs the parts of a process until a signal comes."""
    from headway.cli.opening import await_database
    from headway.composing import settle
    from headway.composing import supervisor as compose

    _log_to_stderr()
    app = call.app(where)
    served = _served(app, tasks) if "worker" in roles else []
    _try_policy(app, served)
    with app:
        await_database(app, call.out.say, wait=wait)
        for line in settle(app, roles, adopt=adopt):
            call.out.say(f"headway: {line}")
        supervisor = compose(app, roles, tasks)
        _on_signals(supervisor, app.settings.shutdown_grace)
        _announce(call, app, roles, served, _address(supervisor))
        code = supervisor.run(until_idle=burst)
        _farewell(call, supervisor)
        return code


def _served(app: App, patterns: Sequence[str]) -> list[str]:
    from headway.errors import BadInput

    found = sorted(app.registry.matching(list(patterns) or None))
    if not found:
        known = ", ".join(sorted(app.registry.specs))
        raise BadInput(f"--tasks: no task fits {', '.join(map(repr, patterns))}: there are {known}", field="tasks")
    return found


def _try_policy(app: App, served: Sequence[str]) -> None:
    """One that cannot be imported, or answers no lanes, is refused before anything is opened."""
    from headway.model.policies import find

    wished = app.settings.concurrency.value(app.settings.aging)
    find(wished.policy)
    for task in served:
        wished.lanes(task, app.registry.get(task).options.resources, on_target=False)


def _address(supervisor: Supervisor) -> str | None:
    from headway.api.server import Server

    return next((part.url for part in supervisor.loops if isinstance(part, Server)), None)


def _announce(call: Call, app: App, roles: Sequence[str], served: Sequence[str], url: str | None) -> None:
    from headway import __version__
    from headway.cli.opening import shown
    from headway.model.values import duration_text
    from headway.tasks import BUILT_IN

    settings = app.settings
    if call.out.as_json:
        facts = {"database": shown(settings), "roles": list(roles), "slots": settings.slots, "tasks": list(served)}
        facts |= {"url": url} if url is not None else {}
        call.out.record({"event": "started", "pid": os.getpid(), **facts})
        return
    call.out.say(f"headway {__version__} on {shown(settings)}")
    if url is not None:
        call.out.say(f"  dashboard at {url}/")
        call.out.say(f"  HTTP API at {url}/api, described in {url}/api/openapi.json")
    if "worker" in roles:
        call.out.say(f"  {settings.slots} slots for: {', '.join(served)}")
        if set(served) <= {task.name for task in BUILT_IN}:
            call.out.say("  these are the built-in tasks: name yours with --app module:app")
    call.out.say(f"  Ctrl-C stops it: running jobs get {duration_text(settings.shutdown_grace)} to end")


def _farewell(call: Call, supervisor: Supervisor) -> None:
    finished = supervisor.worker.finished if supervisor.worker is not None else 0
    if call.out.as_json:
        call.out.record({"event": "stopped", "finished": finished})
    else:
        call.out.say(f"headway: stopped; {finished} job{'s' if finished != 1 else ''} ended here")


def _on_signals(supervisor: Supervisor, grace: float) -> None:
    def stop(*_: object) -> None:
        supervisor.on_signal()
        if supervisor.signals == 1 and supervisor.worker is not None and supervisor.worker.running:
            # Not print: the signal may have come in the middle of one.
            text = f"headway: stopping; running jobs get {grace:g} s to end, a second signal interrupts them\n"
            os.write(sys.stderr.fileno(), text.encode())

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("headway")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False

"""`up` and `work`: builds and runs a process from settings, database, loops and supervisor."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from headway.cli.command import Invocation, command

if TYPE_CHECKING:
    from headway.app import App
    from headway.engine.supervisor import Supervisor
    from headway.wakeup import Wakeup

AppOption = Annotated[str | None, typer.Option("--app", metavar="MODULE:APP", help="App that declares the tasks.")]
Slots = Annotated[int | None, typer.Option(metavar="N", help="Number of jobs to run at once.")]
Tasks = Annotated[
    list[str], typer.Option(metavar="GLOB", help="Only tasks that match, like 'story.*'; may be repeated.")
]
Tenants = Annotated[
    list[str], typer.Option(metavar="NAME", help="Only jobs of this tenant; may be repeated (default: all by turns).")
]
Adopt = Annotated[
    bool, typer.Option("--adopt-settings", help="Store the limits of the settings even while other workers are alive.")
]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Exit 5 if the database cannot be reached, instead of waiting.")
]
Roles = Annotated[
    list[str],
    typer.Option(metavar="ROLE", help="api, scheduler, worker; with commas or repeated (default: all)."),
]
NONE: list[str] = []


class Served(NamedTuple):
    """The tasks and tenants of the worker of a process: patterns, and names (none stands for all)."""

    tasks: Sequence[str]
    tenants: Sequence[str]


def register(root: typer.Typer) -> None:
    @command(root, "up")
    def up(
        call: Invocation,
        app: AppOption = None,
        slots: Slots = None,
        tasks: Tasks = NONE,
        tenant: Tenants = NONE,
        roles: Roles = NONE,
        host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address of the HTTP server.")] = None,
        port: Annotated[
            int | None, typer.Option(metavar="PORT", help="Port of the HTTP server; 0: a free one.")
        ] = None,
        adopt_settings: Adopt = False,
        no_wait: NoWait = False,
    ) -> int:
        """Start Headway: serve HTTP, fire schedules, deliver webhooks, run jobs, recover after crashes."""
        wanted = named_roles(roles)
        call.flags.update(slots=slots, host=host, port=port)
        served = Served(tasks, tenant)
        return serve(call, app, roles=wanted, served=served, adopt=adopt_settings, wait=not no_wait)

    @command(root, "work")
    def work(
        call: Invocation,
        app: AppOption = None,
        slots: Slots = None,
        tasks: Tasks = NONE,
        tenant: Tenants = NONE,
        burst: Annotated[bool, typer.Option("--burst", help="Exit when no job is left to run.")] = False,
        adopt_settings: Adopt = False,
        no_wait: NoWait = False,
    ) -> int:
        """Start a worker only."""
        call.flags["slots"] = slots
        served = Served(tasks, tenant)
        return serve(call, app, roles=["worker"], served=served, burst=burst, adopt=adopt_settings, wait=not no_wait)


def named_roles(given: Sequence[str]) -> list[str]:
    from headway.errors import BadInput
    from headway.runtime import ROLES

    names = [part.strip() for name in given for part in name.split(",")]
    for name in names:
        if name not in ROLES:
            raise BadInput(f"--roles: there is no role {name!r}: use {', '.join(ROLES)}", field="roles")
    return list(dict.fromkeys(names)) or list(ROLES)


def serve(
    call: Invocation,
    where: str | None,
    *,
    roles: Sequence[str],
    served: Served,
    burst: bool = False,
    adopt: bool,
    wait: bool,
) -> int:
    """Runs the roles of this process until a stop signal; returns the exit code."""
    from headway.api.http.descriptors import raise_descriptor_limit
    from headway.cli.database.open import await_database
    from headway.cli.main import started_as
    from headway.cli.stderr_log import log_to_stderr
    from headway.engine import restart
    from headway.engine.execution.process_tree import become_subreaper, protect_memory
    from headway.runtime import settle
    from headway.runtime import supervisor as compose

    call.refuse_shown_password()
    protect_memory()  # first: settings and secrets are read below
    asked = _exit_on_sigterm()
    log_to_stderr()
    raise_descriptor_limit()
    restart.here.take_over()
    wait = wait or restart.here.last is not None  # after a restart the database may still be unreachable
    if "worker" in roles:
        become_subreaper()  # before the first child, so that orphans of task processes become our children
    app = call.app(where)
    if asked.is_set():
        return 0
    if (database := call.flags.get("database")) is not None:
        os.environ["HEADWAY_DATABASE"] = database  # a child process imports the app and does not see our flags
    tasks = _tasks(app, served.tasks) if "worker" in roles else []
    _try_policy(app, tasks)
    with app:

        def begin() -> None:
            for line in settle(app, roles, adopt=adopt):  # printed one by one, because a later step may be refused
                call.out.say(f"headway: {line}")

        await_database(app, call.out.say, wait=wait, begin=begin)
        if served.tenants:
            _refuse_unknown_tenants(app, roles, served.tenants)
        supervisor = compose(app, roles, served.tasks, served.tenants)
        _on_signals(supervisor, app.settings.shutdown_grace)
        if asked.is_set():
            return 0
        if started_as and not burst:
            restart.here.allow(lease=app.settings.lease, stopping=supervisor.wanted.is_set)
        url = _address(supervisor) if "api" in roles else None
        _announce(call, app, roles, Served(tasks, served.tenants), url)
        code = supervisor.run(until_idle=burst)
        _farewell(call, supervisor)
        return code


def _refuse_unknown_tenants(app: App, roles: Sequence[str], names: Sequence[str]) -> None:
    from headway.errors import BadInput
    from headway.store.access import tenants

    if "worker" not in roles:
        text = "--tenant says whose jobs a worker runs, and this process has no worker"
        raise BadInput(text, hint="remove --tenant, or add the role worker", field="tenant")
    with app.database.read() as tx:
        for name in names:
            tenants.find(tx, name)


def _tasks(app: App, patterns: Sequence[str]) -> list[str]:
    from headway.errors import BadInput

    found = sorted(app.registry.matching(list(patterns) or None))
    if not found:
        known = ", ".join(sorted(app.registry.specs))
        raise BadInput(f"--tasks: no task matches {', '.join(map(repr, patterns))}: known are {known}", field="tasks")
    return found


def _try_policy(app: App, served: Sequence[str]) -> None:
    """Refuses a policy that cannot be imported or returns no lanes, before the database is opened."""
    from headway.model.queue.policies import find

    requested = app.settings.concurrency.value(app.settings.aging)
    find(requested.policy)
    for task in served:
        requested.lanes(task, app.registry.get(task).options.resources, on_target=False)


def _address(supervisor: Supervisor) -> str | None:
    from headway.api.server import Server

    return next((part.url for part in supervisor.loops if isinstance(part, Server)), None)


def _announce(call: Invocation, app: App, roles: Sequence[str], served: Served, url: str | None) -> None:
    from headway import __version__
    from headway.cli.database.open import shown
    from headway.engine.client.tokens import any_token
    from headway.engine.supervisor import stop_signals
    from headway.model.values.times import duration_text
    from headway.tasks import BUILT_IN

    settings = app.settings
    if call.out.as_json:
        facts = {
            "database": shown(settings),
            "roles": list(roles),
            "slots": settings.slots,
            "tasks": list(served.tasks),
        }
        facts |= {"tenants": list(served.tenants)} if served.tenants else {}
        facts |= {"url": url} if url is not None else {}
        call.out.record({"event": "started", "pid": os.getpid(), **facts})
        return
    call.out.say(f"headway {__version__} on {shown(settings)}")
    if url is not None and not any_token(app.database):
        call.out.say("  open: every user and program of this machine may do everything, as no token exists")
        call.out.say("  close it with: headway tokens create NAME --role admin --system")
    if url is not None:
        call.out.say(f"  dashboard at {url}/")
        call.out.say(f"  HTTP API at {url}/api, described in {url}/api/openapi.json")
    if "worker" in roles:
        call.out.say(f"  {settings.slots} slots for: {', '.join(served.tasks)}")
        if served.tenants:
            call.out.say(f"  only for the tenant{'s' * (len(served.tenants) > 1)} {', '.join(served.tenants)}")
        if set(served.tasks) <= {task.name for task in BUILT_IN}:
            call.out.say("  these are only the built-in tasks: add yours with --app module:app")
    stops = "Ctrl-C" if signal.SIGINT in stop_signals() else f"kill {os.getpid()}"
    call.out.say(f"  {stops} stops it: running jobs get {duration_text(settings.shutdown_grace)} to end")


def _farewell(call: Invocation, supervisor: Supervisor) -> None:
    from headway.cli.stderr_log import writable

    if sys.stderr is not None and not writable(sys.stderr):
        return  # its reader has stopped: the process ends without a word
    finished = supervisor.worker.finished if supervisor.worker is not None else 0
    if call.out.as_json:
        call.out.record({"event": "stopped", "finished": finished})
    else:
        call.out.say(f"headway: stopped; {finished} job{'s' if finished != 1 else ''} ended here")


def _exit_on_sigterm() -> Wakeup:
    """Exits with code 0 at SIGTERM, as nothing runs yet. Ctrl-C interrupts as in any program.

    The event is set at the signal: code of the app that is being imported may swallow the exit.
    """
    from headway import forks
    from headway.wakeup import Wakeup

    asked = Wakeup()

    def leave(*_: object) -> None:
        asked.set()
        raise SystemExit(0)

    forks.own_signal(signal.SIGTERM, leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by a restart
    atexit.register(_ignore_stop_signals)
    return asked


def _ignore_stop_signals() -> None:
    """Keeps the exit code: Python's last steps restore the default handlers, and a further signal would kill there."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _on_signals(supervisor: Supervisor, grace: float) -> None:
    from headway import forks
    from headway.engine.supervisor import stop_signals
    from headway.engine.worker.heartbeat import complain

    def stop(*_: object) -> None:
        supervisor.on_signal()
        if supervisor.signals == 1 and supervisor.worker is not None and supervisor.worker.pool.running:
            # print is not reentrant, and the signal may have interrupted one.
            complain(f"headway: stopping; running jobs get {grace:g} s to end, a second signal interrupts them\n")

    for number in stop_signals():
        forks.own_signal(number, stop)

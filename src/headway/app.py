"""The application object: tasks are declared on it, jobs are enqueued through it, workers run it."""

from __future__ import annotations

import atexit
import getpass
import math
import os
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, TypeVar, overload

from headway import forks
from headway.engine.client.client import Client
from headway.engine.execution import own_variables
from headway.engine.execution.context import Context
from headway.engine.execution.exit_hooks import at_end_of_job
from headway.engine.scheduler.declared import DeclaredSchedule
from headway.engine.tasks.job_handle import Job
from headway.engine.tasks.plan import Plan, Step, plan_of
from headway.engine.tasks.registry import Registry, TaskSpec, make_spec
from headway.engine.tasks.task import P, Task, make_job, make_options
from headway.errors import BadInput, NotFound
from headway.model.jobs.job import Actor, Options
from headway.model.jobs.retry import RetryPolicy
from headway.model.schedules.definition import Definition
from headway.model.values.json import to_json
from headway.model.values.names import check_name, check_priority
from headway.model.values.suggestions import closest
from headway.store.db import Database, open_database
from headway.store.migrations import migrate
from headway.tasks import BUILT_IN

if TYPE_CHECKING:
    from headway.clock import Clock
    from headway.config import Explained, Settings
    from headway.engine.direct.call import Caller
    from headway.engine.execution.secrets import Vault
    from headway.runtime import Mounted

R = TypeVar("R")


def current_user() -> Actor:
    """Returns the actor for the user that runs this process: its login name, and the host."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"uid {os.getuid()}"
    return Actor("user", f"{name}@{socket.gethostname()}", name)


class App:
    """An application: its tasks, its settings and its database.

    Settings are read and the database is opened on first use, so importing a module with an App costs nothing.
    """

    def __init__(
        self,
        database: str | None = None,
        *,
        config: str | Path | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        self.registry = Registry()
        self.tasks: dict[str, Task[..., Any]] = {}
        self.schedules: dict[str, DeclaredSchedule] = {}
        self._overrides: dict[str, Any] = {**settings, **({"database": database} if database is not None else {})}
        self._config = Path(config) if config is not None else None
        self._clock = clock
        self._lock = threading.RLock()
        self._settings: Settings | None = None
        self._database: Database | None = None
        self._client: Client | None = None
        # The tenant whose jobs, schedules and targets this app creates and reads.
        self.tenant = "default"
        self._caller: Caller | None = None
        self._mounted: list[Mounted] = []
        for task in BUILT_IN:
            self._declare(task.function, name=task.name)
        forks.follow(self)

    # --- declarations ---

    @overload
    def task(self, name: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, name: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, name: str | None = None, /, **options: Any) -> _Declare: ...
    def task(self, name: Any = None, /, **options: Any) -> Any:
        """Declares a task: `@app.task`, `@app.task("story.generate", timeout="30m")`."""
        if callable(name):
            return self._declare(name, name=None)
        return lambda function: self._declare(function, name=name, **options)

    def _declare(
        self,
        function: Callable[..., Any],
        *,
        name: str | None,
        isolation: str | None = None,
        priority: int = 0,
        direct: str | None = None,
        **options: Any,
    ) -> Task[..., Any]:
        requested = make_options(Options(), **options)
        spec = make_spec(
            function,
            name=name,
            isolation=isolation,
            options=requested,
            priority=check_priority(priority),
            retry=options.get("retry"),
            direct=direct,
        )
        self.registry.add(spec)
        task = self._task(spec)
        self.tasks[spec.name] = task
        return task

    def schedule(
        self, cron: str | None = None, /, *, name: str | None = None, **definition: Any
    ) -> Callable[[Task[P, R]], Task[P, R]]:
        """Declares a schedule of one task; the decorator stands above `@app.task`.

        `@app.schedule("30 2 * * mon-fri", timezone="Europe/Berlin")`, or `interval="10m"`, or `times=[…]`. A process
        with the role `scheduler` stores the schedule when it starts.
        """

        def declare(task: Task[P, R]) -> Task[P, R]:
            if not isinstance(task, Task):
                raise BadInput("@app.schedule needs a task", hint="write it above @app.task", field="schedule")
            self.declare_schedule(name or task.name, {"cron": cron, "steps": [{"task": task.name}], **definition})
            return task

        return declare

    def declare_schedule(self, name: str, definition: Mapping[str, object]) -> None:
        """Declares a schedule with any steps. A process with the role `scheduler` stores it when it starts."""
        check_name(name, field="name")
        if name in self.schedules:
            raise BadInput(f"there are two schedules named {name}", hint="give one of them another name", field="name")
        self.schedules[name] = DeclaredSchedule(name, Definition.parse(definition))

    def _task(self, spec: TaskSpec) -> Task[..., Any]:
        return Task(spec, lambda: self.client, lambda: self.caller)

    # --- use ---

    def configure(self, config: Path | None, flags: Mapping[str, Any]) -> None:
        """Applies a command line's settings over those given to the constructor.

        Must be called before the database is opened.
        """
        with self._lock:
            self._config = config or self._config
            self._overrides |= {name: value for name, value in flags.items() if value is not None}
            self._settings = None

    @property
    def settings(self) -> Settings:
        if (known := self._settings) is not None:
            return known
        from headway.config import load

        with self._lock:
            if self._settings is None:
                self._settings = load(self._config, own_variables.here.environment(), self._overrides)
            return self._settings

    def explained(self) -> list[Explained]:
        """Returns every setting with its masked value, its source and its description."""
        from headway.config import explain

        return explain(self.settings)

    @property
    def vault(self) -> Vault:
        """Returns the secrets and connections that jobs use by name."""
        from headway.engine.execution.secrets import Vault

        settings = self.settings
        return Vault(settings.secrets, settings.connections, settings.database)

    @property
    def database(self) -> Database:
        """Returns the database; the first access opens it and migrates its schema."""
        if (known := self._database) is not None:
            return known
        with self._lock:
            if self._database is None:
                database = open_database(self.settings.database, clock=self._clock, listen=self.settings.listen)
                try:
                    migrate(database)
                except BaseException:
                    database.close()
                    raise
                self._database = database
                at_end_of_job(self.close)
            return self._database

    @property
    def client(self) -> Client:
        if (known := self._client) is not None:
            return known
        with self._lock:
            if self._client is None:
                self._client = client_of(self, self.settings, self.database, self.tenant)
            return self._client

    @property
    def caller(self) -> Caller:
        """Returns the holder of direct calls; the first access registers it with a lease."""
        with self._lock:
            if self._caller is not None and self._caller.gone:
                self._end_caller()
            if self._caller is None:
                # Imported here because it brings the execution engine, which a process that only enqueues never needs.
                from headway.engine.direct.call import Caller
                from headway.engine.direct.reservation_holder import HolderConfig

                settings, vault = self.settings, self.vault
                times = settings.lease, settings.heartbeat, settings.recovery_interval
                terms = HolderConfig(*times, settings.listen, vault.variables)
                wait = math.inf if settings.direct_wait is None else settings.direct_wait
                caller = Caller(self.client, terms, wait=wait, vault=vault)
                caller.open()
                self._caller = caller
                atexit.register(self._end_caller_of, os.getpid())
            return self._caller

    def _end_caller(self) -> None:
        caller, self._caller = self._caller, None
        if caller is not None:
            atexit.unregister(self._end_caller_of)
            caller.close()

    def _end_caller_of(self, pid: int) -> None:
        """Closes the caller at exit of the process that opened it, and not in a forked child."""
        if os.getpid() == pid:
            self._end_caller()

    def enqueue(self, task: str, params: Mapping[str, object] | None = None, **options: Any) -> Job:
        """Enqueues a job by its task's name; the task may exist only in another process."""
        if task in self.tasks:
            known = self.tasks[task].using(**options) if options else self.tasks[task]
            return known.enqueue(**(params or {}))
        for name in ("name", "continue_on_failure", "wait", "connection"):
            if options.get(name):
                raise BadInput(
                    f"{name} cannot be used with {task!r}, which this app does not declare",
                    hint="leave it out",
                    field=name,
                )
        job_id, created = self.client.enqueue(make_job(self.client, task, params or {}, options))
        return Job(self.client, job_id, created=created)

    def step(self, task: str, params: Mapping[str, object] | None = None, **options: Any) -> Step:
        """Returns a step by its task's name; the task may exist only in another process."""
        known = self.tasks.get(task)
        if known is not None:
            return (known.using(**options) if options else known).step(**(params or {}))
        name, given = options.pop("name", task), dict(params or {})
        text = to_json(given, field="params")
        return Step(name, lambda client: make_job(client, task, given, options), task, text, options)

    def group(
        self,
        steps: Iterable[Any],
        *,
        mode: str = "sequential",
        on_failure: str = "stop",
        on_shutdown: str | None = None,
        name: str = "group",
    ) -> Plan:
        """Returns a plan for a group: `sequential`, `parallel`, or `staged` (one list of steps per stage)."""
        return plan_of(lambda: self.client, steps, name=name, mode=mode, on_failure=on_failure, on_shutdown=on_shutdown)

    def plan(self, name: str, *, on_failure: str = "stop", on_shutdown: str | None = None) -> Plan:
        """Returns a group's plan: `app.plan("nightly").then(a.step()).then(b.step(), c.step()).start()`."""
        declare = self.declare_schedule
        return Plan(lambda: self.client, name, on_failure=on_failure, on_shutdown=on_shutdown, declare=declare)

    def direct(self, task: str, params: Mapping[str, object] | None = None, **options: Any) -> Any:
        """Runs a task of this app as a direct call and returns its result."""
        known = self.tasks.get(task)
        if known is None:
            near = closest(task, self.tasks)
            hint = (
                f"did you mean {near}?" if near else "a direct call runs in this process: declare the task in this app"
            )
            raise NotFound(f"no task here is named {task!r}", hint=hint, code="unknown_task")
        return (known.using(**options) if options else known).call(**(params or {}))

    def job(self, job_id: int) -> Job:
        """Returns the handle of an existing job, or raises NotFound."""
        self.client.get(job_id)
        return Job(self.client, job_id)

    # --- inside another application ---

    def asgi(self, *, open_on_loopback: bool = False) -> Any:
        """Returns the HTTP service as an ASGI app: `fastapi_app.mount("/headway", app.asgi())`.

        It needs a token. With `open_on_loopback`, requests of this machine need none while there is none.
        """
        from headway.runtime import Mounted

        mounted = Mounted(self, open_on_loopback=open_on_loopback)
        self._mounted.append(mounted)
        return mounted

    def lifespan(self, _: Any = None) -> AbstractAsyncContextManager[None]:
        """Runs worker, scheduler and recovery inside an application: `FastAPI(lifespan=app.lifespan)`."""
        from headway.runtime import lifespan

        return lifespan(self, ("scheduler", "worker"))

    # --- forks (headway.forks) ---

    def before_fork(self) -> None:
        return

    def after_fork_in_parent(self) -> None:
        return

    def after_fork_in_child(self) -> None:
        """Drops the client and the caller: a child gets its own, and the parent keeps its direct calls."""
        self._lock = threading.RLock()
        if self._caller is not None:
            forks.never_free(self._caller)
        self._client = self._caller = None
        for mounted in self._mounted:
            mounted.after_fork_in_child()

    def close(self) -> None:
        with self._lock:
            for mounted in self._mounted:
                mounted.close()
            self._end_caller()
            if self._database is not None:
                self._database.close()
            self._database = self._client = None

    def __enter__(self) -> App:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


if TYPE_CHECKING:
    from typing import Protocol

    class _Declare(Protocol):
        @overload
        def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
        @overload
        def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


def client_of(app: App, settings: Settings, database: Database, tenant: str) -> Client:
    """Returns a client of a database with an app's tasks, as these settings describe it."""
    return Client(
        database,
        app.registry,
        actor=current_user(),
        tenant=tenant,
        retry=RetryPolicy(settings.retry.max_attempts, settings.retry.base_delay),
        resources=settings.resources,
        reservation_ttl=settings.reservation_ttl,
        allow_private=settings.webhooks.allow_private,
        secrets=settings.secrets,
        connections=settings.connections.keys(),
        tick_tolerance=settings.tick_tolerance,
    )

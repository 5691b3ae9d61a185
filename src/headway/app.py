"""The application object: tasks are declared on it, jobs are enqueued through it, workers run it."""

from __future__ import annotations

import atexit
import getpass
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, TypeVar, overload

from headway.engine.client import Client
from headway.engine.context import Context
from headway.engine.declared import Declared
from headway.engine.handle import Job
from headway.engine.plan import Plan, Step, plan_of
from headway.engine.registry import Registry, TaskSpec, make_spec
from headway.engine.task import P, Task, make_job, make_options
from headway.errors import BadInput, NotFound
from headway.model.job import Actor, Options
from headway.model.retry import RetryPolicy
from headway.model.schedule import Definition
from headway.model.values import check_name, check_priority, closest, to_json
from headway.store.db import Database, open_database
from headway.store.migrate import migrate
from headway.tasks import BUILT_IN

if TYPE_CHECKING:
    from headway.clock import Clock
    from headway.composing import Mounted
    from headway.config import Explained, Settings
    from headway.engine.direct import Caller
    from headway.engine.secrets import Vault

R = TypeVar("R")


def current_user() -> Actor:
    """Who runs this process, for the audit."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"uid {os.getuid()}"
    return Actor("user", str(os.getpid()), name)


class App:
    """Nothing is read or opened before it is needed: importing a module with an App costs nothing."""

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
        self.schedules: dict[str, Declared] = {}
        self._overrides: dict[str, Any] = {**settings, **({"database": database} if database is not None else {})}
        self._config = Path(config) if config is not None else None
        self._clock = clock
        self._lock = threading.RLock()
        self._settings: Settings | None = None
        self._database: Database | None = None
        self._client: Client | None = None
        # Whose things it makes and sees.
        self.tenant = "default"
        self._caller: Caller | None = None
        self._mounted: list[Mounted] = []
        for task in BUILT_IN:
            self._declare(task.function, name=task.name)

    # --- declaring ---

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
        wished = make_options(Options(), **options)
        spec = make_spec(
            function,
            name=name,
            isolation=isolation,
            options=wished,
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
        """Over `@app.task`: `@app.schedule("30 2 * * mon-fri", timezone="Europe/Berlin")`, or `interval="10m"`, or
        `times=[…]`. Stored when a process with the role `scheduler` starts."""

        def declare(task: Task[P, R]) -> Task[P, R]:
            if not isinstance(task, Task):
                raise BadInput("@app.schedule goes over @app.task: write it one line higher", field="schedule")
            self.declare_schedule(name or task.name, {"cron": cron, "steps": [{"task": task.name}], **definition})
            return task

        return declare

    def declare_schedule(self, name: str, definition: Mapping[str, object]) -> None:
        """A schedule of any steps, as part of the code."""
        check_name(name, field="name")
        if name in self.schedules:
            raise BadInput(f"there are two schedules named {name}: give one of them another name", field="name")
        self.schedules[name] = Declared(name, Definition.parse(definition))

    def _task(self, spec: TaskSpec) -> Task[..., Any]:
        return Task(spec, lambda: self.client, lambda: self.caller)

    # --- using ---

    def configure(self, config: Path | None, flags: Mapping[str, Any]) -> None:
        """What a command line says, over what was said where the app was made. Before anything is opened."""
        with self._lock:
            self._config = config or self._config
            self._overrides |= {name: value for name, value in flags.items() if value is not None}
            self._settings = None

    @property
    def settings(self) -> Settings:
        from headway.config import load

        with self._lock:
            if self._settings is None:
                self._settings = load(self._config, os.environ, self._overrides)
            return self._settings

    def explained(self) -> list[Explained]:
        """Every setting: its value without its secrets, where it was given, what it means."""
        from headway.config import explain

        return explain(self.settings)

    @property
    def vault(self) -> Vault:
        """Where the secrets and connections are that jobs know by name."""
        from headway.engine.secrets import Vault

        settings = self.settings
        return Vault(settings.secrets, settings.connections, settings.database)

    @property
    def database(self) -> Database:
        """Opened, and its schema brought up to date, when it is first needed."""
        with self._lock:
            if self._database is None:
                database = open_database(self.settings.database, clock=self._clock, listen=self.settings.listen)
                try:
                    migrate(database)
                except BaseException:
                    database.close()
                    raise
                self._database = database
            return self._database

    @property
    def client(self) -> Client:
        with self._lock:
            if self._client is None:
                usual = self.settings.retry
                retry = RetryPolicy(usual.max_attempts, usual.base_delay)
                resources = self.settings.resources
                self._client = Client(
                    self.database,
                    self.registry,
                    actor=current_user(),
                    tenant=self.tenant,
                    retry=retry,
                    resources=resources,
                    reservation_ttl=self.settings.reservation_ttl,
                    allow_private=self.settings.webhooks.allow_private,
                )
            return self._client

    @property
    def caller(self) -> Caller:
        """Who makes direct calls: known to the others, with a lease, from the first call on."""
        with self._lock:
            if self._caller is not None and self._caller.gone:
                self._end_caller()
            if self._caller is None:
                from headway.engine.direct import Caller  # with all that runs tasks: most processes only enqueue
                from headway.engine.holder import Terms

                settings = self.settings
                terms = Terms(settings.lease, settings.heartbeat, settings.recovery_interval, settings.listen)
                caller = Caller(self.client, terms, wait=settings.direct_wait, vault=self.vault)
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
        """When a program ends without closing its app; not in a process that it forked."""
        if os.getpid() == pid:
            self._end_caller()

    def enqueue(self, task: str, params: Mapping[str, object] | None = None, **wishes: Any) -> Job:
        """A job of a task that is known by its name only: of another process, say."""
        if task in self.tasks:
            known = self.tasks[task].using(**wishes) if wishes else self.tasks[task]
            return known.enqueue(**(params or {}))
        for name in ("name", "continue_on_failure", "wait", "connection"):
            if wishes.get(name):
                raise BadInput(f"{name} is not for a job of a task that only other processes have", field=name)
        job_id, created = self.client.enqueue(make_job(self.client, task, params or {}, wishes))
        return Job(self.client, job_id, created=created)

    def step(self, task: str, params: Mapping[str, object] | None = None, **wishes: Any) -> Step:
        """A step of a task that is known by its name only: of another process, say."""
        known = self.tasks.get(task)
        if known is not None:
            return (known.using(**wishes) if wishes else known).step(**(params or {}))
        name, given = wishes.pop("name", task), dict(params or {})
        text = to_json(given, field="params")
        return Step(name, lambda client: make_job(client, task, given, wishes), task, text, wishes)

    def group(
        self, steps: Iterable[Any], *, mode: str = "sequential", on_failure: str = "stop", name: str = "group"
    ) -> Plan:
        """Jobs that belong together: one after the other, all at once, or (`staged`) in lists of their own."""
        return plan_of(lambda: self.client, steps, name=name, mode=mode, on_failure=on_failure)

    def plan(self, name: str, *, on_failure: str = "stop") -> Plan:
        """A group in stages: `app.plan("nightly").then(a.step()).then(b.step(), c.step()).start()`."""
        return Plan(lambda: self.client, name, on_failure=on_failure, declare=self.declare_schedule)

    def direct(self, task: str, params: Mapping[str, object] | None = None, **wishes: Any) -> Any:
        """A direct call of a task by its name: it runs here, so this app has to have it."""
        known = self.tasks.get(task)
        if known is None:
            near = closest(task, self.tasks)
            hint = (
                f"did you mean {near}?" if near else "a direct call runs where it is made, and this app has to have it"
            )
            raise NotFound(f"no task here is named {task!r}: {hint}", code="unknown_task")
        return (known.using(**wishes) if wishes else known).call(**(params or {}))

    def job(self, job_id: int) -> Job:
        """A job that exists already."""
        self.client.get(job_id)
        return Job(self.client, job_id)

    # --- in another application ---

    def asgi(self) -> Any:
        """The HTTP service as an ASGI application: `fastapi_app.mount("/headway", app.asgi())`."""
        from headway.composing import Mounted

        mounted = Mounted(self)
        self._mounted.append(mounted)
        return mounted

    def lifespan(self, _: Any = None) -> AbstractAsyncContextManager[None]:
        """Worker, scheduler and recovery for as long as an application lives: `FastAPI(lifespan=app.lifespan)`."""
        from headway.composing import lifespan

        return lifespan(self, ("scheduler", "worker"))

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

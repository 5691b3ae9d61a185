"""The application object: tasks are declared on it, jobs are enqueued through it, workers run it."""

from __future__ import annotations

import atexit
import getpass
import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, TypeVar, overload

from headway.engine.client import Client
from headway.engine.context import Context
from headway.engine.handle import Job
from headway.engine.registry import Registry, TaskSpec, make_spec
from headway.engine.task import P, Task, make_options
from headway.errors import BadInput, NotFound
from headway.model.job import Actor, Options
from headway.model.retry import RetryPolicy
from headway.model.values import check_priority, closest, to_json
from headway.store.db import Database, open_database
from headway.store.migrate import migrate
from headway.tasks.command import command

if TYPE_CHECKING:
    from headway.clock import Clock
    from headway.config import Settings
    from headway.engine.direct import Caller

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
        self._overrides: dict[str, Any] = {**settings, **({"database": database} if database is not None else {})}
        self._config = Path(config) if config is not None else None
        self._clock = clock
        self._lock = threading.RLock()
        self._settings: Settings | None = None
        self._database: Database | None = None
        self._client: Client | None = None
        self._caller: Caller | None = None
        self._declare(command.function, name=command.name)

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
        if direct is not None and not direct.startswith("/"):
            raise BadInput(f"direct must be a path like /story/generate, not {direct!r}", field="direct")
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
                    retry=retry,
                    resources=resources,
                    reservation_ttl=self.settings.reservation_ttl,
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
                caller = Caller(self.client, terms, wait=settings.direct_wait)
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
        priority, told = self.client.known_task(task)
        options, retry = Options.parse(told), json.loads(told).get("retry")
        spec = make_spec(_elsewhere, name=task, isolation=None, options=options, priority=priority, retry=retry)
        text = to_json(dict(params or {}), field="params")
        bare = self._task(spec).using(**wishes)
        job_id, created = self.client.enqueue(bare._new_job(self.client, text))
        return Job(self.client, job_id, created=created)

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

    def close(self) -> None:
        with self._lock:
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


def _elsewhere(**params: Any) -> None:
    """Stands for the function of a task that only other processes have."""

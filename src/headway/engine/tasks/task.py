"""A task as its author uses it: a function that can be enqueued, with options."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from headway.clock import micros
from headway.engine import tracing
from headway.engine.client.client import Client
from headway.engine.tasks.job_handle import Job
from headway.engine.tasks.registry import TaskSpec, make_spec
from headway.engine.webhooks.url_policy import refuse_closed
from headway.errors import BadInput
from headway.model.jobs.job import ON_ERROR, ON_LOST, ON_SHUTDOWN, NewJob, Options, check_choice
from headway.model.jobs.retry import RetryPolicy
from headway.model.values.json import to_json
from headway.model.values.names import check_budget, check_name, check_priority, check_resources
from headway.model.values.times import instant, longest_wait, seconds
from headway.model.webhooks.webhook import JOB_EVENTS, check_events, check_url

if TYPE_CHECKING:
    from headway.engine.direct.call import Caller
    from headway.engine.tasks.plan import Step

P = ParamSpec("P")
R = TypeVar("R")

_OPTIONS = frozenset(
    (
        *("retry", "timeout", "budget", "on_lost", "on_error", "on_shutdown", "resources", "continue_on_failure"),
        *("webhook_url", "webhook_events", "traceparent"),
    )
)
_RETRY = ("max_attempts", "base_delay", "max_delay", "jitter")


def make_options(
    base: Options,
    *,
    retry: RetryPolicy | Mapping[str, Any] | int | None = None,
    timeout: float | str | None = None,
    budget: Mapping[str, float] | None = None,
    on_lost: str | None = None,
    on_error: str | None = None,
    on_shutdown: str | None = None,
    resources: Sequence[str] | None = None,
    continue_on_failure: bool = False,
    webhook_url: str | None = None,
    webhook_events: Sequence[str] | None = None,
    traceparent: str | None = None,
) -> Options:
    """Returns the options with some of them changed; refuses invalid ones."""
    check_choice(on_lost, ON_LOST, field="on_lost")
    check_choice(on_error, ON_ERROR, field="on_error")
    check_choice(on_shutdown, ON_SHUTDOWN, field="on_shutdown")
    return replace(
        base,
        retry=base.retry if retry is None else make_retry(base.retry, retry),
        timeout=base.timeout if timeout is None else _positive(seconds(timeout, field="timeout"), "timeout"),
        budget=base.budget if budget is None else check_budget(budget),
        on_lost=on_lost or base.on_lost,
        on_error=on_error or base.on_error,
        on_shutdown=on_shutdown or base.on_shutdown,
        resources=base.resources if resources is None else check_resources(resources),
        continue_on_failure=bool(continue_on_failure),
        **_webhook(base, webhook_url, webhook_events),
        traceparent=base.traceparent if traceparent is None else tracing.check(traceparent),
    )


def _webhook(base: Options, url: str | None, events: Sequence[str] | None) -> dict[str, Any]:
    """Returns the webhook options of a job."""
    url = base.webhook_url if url is None else check_url(url, field="webhook_url")
    if events is not None and url is None:
        raise BadInput(
            "webhook_events selects the events for webhook_url", hint="give webhook_url too", field="webhook_events"
        )
    wanted = base.webhook_events if events is None else check_events(events, known=JOB_EVENTS, field="webhook_events")
    return {"webhook_url": url, "webhook_events": wanted}


def _positive(value: float, field: str) -> float:
    if value <= 0:
        raise BadInput(f"{field} must be more than 0", field=field)
    return value


def make_retry(base: RetryPolicy, option: RetryPolicy | Mapping[str, Any] | int) -> RetryPolicy:
    if isinstance(option, RetryPolicy):
        return option
    given = {"max_attempts": option} if isinstance(option, int) else dict(option)
    if unknown := given.keys() - set(_RETRY):
        raise BadInput(f"retry has no {sorted(unknown)[0]!r}: it has {', '.join(_RETRY)}", field="retry")
    attempts = given.get("max_attempts", base.max_attempts)
    if isinstance(attempts, bool) or not isinstance(attempts, int) or not 0 <= attempts <= 1_000_000:
        raise BadInput(
            f"retry.max_attempts must be a whole number from 0, not {attempts!r}", field="retry.max_attempts"
        )
    longest = given.get("max_delay", base.max_delay)
    jitter = given.get("jitter", base.jitter)
    if not isinstance(jitter, (int, float)) or not 0 <= jitter <= 1:
        raise BadInput(f"retry.jitter must be between 0 and 1, not {jitter!r}", field="retry.jitter")
    return RetryPolicy(
        attempts,
        seconds(given.get("base_delay", base.base_delay), field="retry.base_delay"),
        None if longest is None else seconds(longest, field="retry.max_delay"),
        float(jitter),
    )


class JobOptions:
    """The checked options of one call of `using()`."""

    def __init__(
        self,
        spec: TaskSpec,
        *,
        priority: int | None = None,
        delay: float | str | None = None,
        not_before: object = None,
        expires_at: object = None,
        key: str | None = None,
        hold: bool = False,
        target: str | None = None,
        wait: float | str | None = None,
        connection: Any = None,
        name: str | None = None,
        retry_policy: RetryPolicy | Mapping[str, Any] | int | None = None,
        **options: Any,
    ) -> None:
        if delay is not None and not_before is not None:
            raise BadInput("give delay or not_before, not both", field="delay")
        unknown = options.keys() - _OPTIONS
        if unknown:
            raise BadInput(f"using() has no option {sorted(unknown)[0]!r}", field=sorted(unknown)[0])
        if retry_policy is not None:
            options["retry"] = retry_policy
        self.connection = connection
        self.name = None if name is None else check_name(name, field="name")
        self.wait = None if wait is None else longest_wait(wait, field="wait")
        self.webhook_url: str | None = options.get("webhook_url")
        only_jobs = {
            "priority": priority,
            "delay": delay,
            "not_before": not_before,
            "expires_at": expires_at,
            "key": key,
            "hold": hold or None,
            "connection": connection,
            "webhook_url": self.webhook_url,
        }
        self.only_jobs = [name for name, option in only_jobs.items() if option is not None]
        self.options = make_options(spec.options, **options) if options else spec.options
        self.retries = [option for option in (spec.retry, options.get("retry")) if option is not None]
        self._text: tuple[RetryPolicy, str] | None = None
        self.fields = {
            "priority": spec.priority if priority is None else check_priority(priority),
            "key": None if key is None else check_name(key, field="key"),
            "delay": None if delay is None else micros(seconds(delay, field="delay")),
            "not_before": None if not_before is None else instant(not_before, field="not_before"),
            "expires_at": None if expires_at is None else instant(expires_at, field="expires_at"),
            "hold": bool(hold),
            "target": None if target is None else check_name(target, field="target"),
            "resources": self.options.resources,
        }

    def text(self, default: RetryPolicy) -> str:
        """Returns the options as stored, with the default retry policy if none is given."""
        # The policy is nearly always the same object, so most calls compare nothing.
        if self._text is None or (self._text[0] is not default and self._text[0] != default):
            # A job on a target is not retried unless the task or the caller asks for it.
            policy = default if self.fields["target"] is None else replace(default, max_attempts=0)
            for option in self.retries:
                policy = make_retry(policy, option)
            self._text = default, replace(self.options, retry=policy).text()
        return self._text[1]


class Task(Generic[P, R]):
    """A task.

    Calling it calls the function; `enqueue` creates a job with the same arguments.
    """

    def __init__(self, spec: TaskSpec, client: Callable[[], Client], caller: Callable[[], Caller]) -> None:
        self.spec = spec
        self.name = spec.name
        self.function = spec.function
        self._client = client
        self._caller = caller
        self._options = JobOptions(spec)
        self._asked: Mapping[str, Any] = {}
        self.__doc__ = spec.function.__doc__
        self.__wrapped__ = spec.function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.spec.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def using(self, **options: Any) -> Task[P, R]:
        """Returns the task with other options: priority, delay, key, budget, retry, …"""
        other: Task[P, R] = Task(self.spec, self._client, self._caller)
        other._options = JobOptions(self.spec, **options)
        other._asked = options
        return other

    def _params(self, params: Mapping[str, object]) -> str:
        """Checks params against the signature and as strict JSON. Returns the JSON."""
        return to_json(self.spec.signature.check(params), field="params")

    def _new_job(self, client: Client, params: str, *, step: bool = False) -> NewJob:
        if not step and (self._options.name is not None or self._options.options.continue_on_failure):
            name = "continue_on_failure" if self._options.name is None else "name"
            raise BadInput(f"{name} is for steps of a group: a single job has none", field=name)
        if self._options.wait is not None:
            raise BadInput("wait is for direct calls: a job waits in the queue as long as it takes", field="wait")
        _refuse_closed(client, self._options)
        return NewJob(self.name, params, self._options.text(client.usual_retry), **self._options.fields)  # type: ignore[arg-type]

    def enqueue(self, *args: P.args, **params: P.kwargs) -> Job:
        if args:
            raise BadInput(f"{self.name}: give params by name, as in enqueue(topic=…)", field="params")
        checked = self._params(params)
        client = self._client()
        job = self._new_job(client, checked)
        if self._options.connection is not None:
            (job_id,) = client.enqueue_on(self._options.connection, job, [job.params])
            return Job(client, job_id)
        job_id, created = client.enqueue(job)
        return Job(client, job_id, created=created)

    def enqueue_many(self, params: Iterable[Mapping[str, object]]) -> list[Job]:
        """Creates one job for each item, all in one transaction or none."""
        client = self._client()
        texts = [self._params(job_params) for job_params in params]
        job = self._new_job(client, "{}")
        if not texts:
            return []
        if self._options.connection is not None:
            return [Job(client, job_id) for job_id in client.enqueue_on(self._options.connection, job, texts)]
        if job.key is not None:
            raise BadInput("enqueue_many makes several jobs, and a key belongs to one", hint="use enqueue", field="key")
        return [Job(client, job_id) for job_id, _ in client.enqueue_alike(job, texts)]

    def step(self, *args: P.args, **params: P.kwargs) -> Step:
        """Returns a step of a group or a plan with these arguments.

        A param may be `{"$result": "an earlier step"}`.
        """
        from headway.engine.tasks.plan import Step

        if args:
            raise BadInput(f"{self.name}: give params by name, as in step(topic=…)", field="params")
        if self._options.connection is not None:
            raise BadInput("connection= is for single jobs, not for steps", field="connection")
        checked = self._params(params)
        options = {name: option for name, option in self._asked.items() if name != "name"}
        name = self._options.name or self.name
        return Step(name, lambda client: self._new_job(client, checked, step=True), self.name, checked, options)

    def call(self, *args: P.args, **params: P.kwargs) -> Any:
        """Runs the task now, ahead of the queue of its lanes, and returns its result.

        A direct call is not a job.
        """
        from headway.engine.direct.call import prepare  # imports the executors; most processes only enqueue

        if args:
            raise BadInput(f"{self.name}: give params by name, as in call(topic=…)", field="params")
        return self._caller().call(prepare(self._client(), self.spec, params, self._options))


def make_job(client: Client, task: str, params: Mapping[str, object], options: Mapping[str, Any]) -> NewJob:
    """Returns a new job of a task known by name, as `using(**options)` would make it.

    `continue_on_failure` is accepted here, for steps.
    """
    here = client.registry.specs.get(task)
    spec = _spec_elsewhere(task, *client.known_task(task)) if here is None else here
    requested = JobOptions(spec, **options)
    checked = dict(params) if here is None else here.signature.check(params)
    _refuse_closed(client, requested)
    return NewJob(task, to_json(checked, field="params"), requested.text(client.usual_retry), **requested.fields)  # type: ignore[arg-type]


def _refuse_closed(client: Client, options: JobOptions) -> None:
    """Refuses a private webhook_url given with this job.

    The URL of the task itself is checked by the sending process, with its own settings.
    """
    if options.webhook_url is not None:
        refuse_closed(options.webhook_url, allow_private=client.allow_private, field="webhook_url")


@lru_cache(maxsize=1024)
def _spec_elsewhere(task: str, priority: int, facts: str) -> TaskSpec:
    """Returns the spec of a task of other processes, as its last worker declared it."""
    options, retry = Options.parse(facts), json.loads(facts).get("retry")
    return make_spec(_elsewhere, name=task, isolation=None, options=options, priority=priority, retry=retry)


def _elsewhere(**params: Any) -> None:
    """Placeholder for the function of a task that only other processes have."""

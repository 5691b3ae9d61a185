"""Plans: steps, the stages they form, and the group that is created from them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headway.engine.tasks.job_handle import LOOKS, Job
from headway.errors import BadInput, JobFailed
from headway.model.groups.group import Group, NewGroup, NewMember, check_mode, failure_policy, unique_names
from headway.model.jobs.job import ON_SHUTDOWN, NewJob, Options, check_choice
from headway.store.groups import advance as groups

if TYPE_CHECKING:
    from headway.engine.client.client import Client


Declare = Callable[[str, Mapping[str, object]], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One task with its params, as a member of a group; `task.step(…)` makes it."""

    name: str
    make: Callable[[Client], NewJob]
    task: str
    params: str
    options: Mapping[str, Any]

    def written(self, index: int) -> dict[str, object]:
        """Returns the step as a schedule definition writes it."""
        options = {"retry_policy" if name == "retry" else name: option for name, option in self.options.items()}
        return {**options, "index": index, "name": self.name, "task": self.task, "params": json.loads(self.params)}


def members_of(
    client: Client, stages: Sequence[Sequence[Step]], on_shutdown: str | None = None
) -> tuple[NewMember, ...]:
    """Returns the members of a group; equal step names get a number each.

    `on_shutdown` is for the steps that do not set it themselves.
    """
    steps = [(n, step) for n, stage in enumerate(stages) for step in stage]
    names = unique_names([step.name for _, step in steps])
    found = zip(steps, names, strict=True)
    return tuple(NewMember(_made(client, step, on_shutdown), n, name) for (n, step), name in found)


def _made(client: Client, step: Step, on_shutdown: str | None) -> NewJob:
    job = step.make(client)
    if on_shutdown is None or step.options.get("on_shutdown") is not None:
        return job
    return job._replace(options=replace(Options.parse(job.options), on_shutdown=on_shutdown).text())


class Plan:
    """Stages of steps: steps of a stage run in parallel, stages in order.

    `start()` creates a group from the plan.
    """

    def __init__(
        self,
        client: Callable[[], Client],
        name: str,
        *,
        on_failure: str = "stop",
        on_shutdown: str | None = None,
        mode: str = "staged",
        declare: Declare | None = None,
    ) -> None:
        failure_policy(on_failure)
        check_choice(on_shutdown, ON_SHUTDOWN, field="on_shutdown")
        self._client = client
        self._declare = declare
        self.name = name
        self.mode = check_mode(mode)
        self.on_failure = on_failure
        self.on_shutdown = on_shutdown
        self.stages: list[tuple[Step, ...]] = []

    def then(self, *steps: Step) -> Plan:
        """Adds a stage after the existing ones."""
        if not steps:
            raise BadInput("a stage needs at least one step", field="steps")
        for step in steps:
            _check_step(step)
        self.stages.append(steps)
        return self

    def schedule(self, cron: str | None = None, /, **definition: Any) -> Plan:
        """Declares the plan as a schedule of the app.

        Example: `plan.schedule("30 2 * * mon-fri", timezone="Europe/Berlin")`
        """
        if self._declare is None:
            raise BadInput("only a plan of an app can be a schedule: app.plan(…).then(…).schedule(…)", field="schedule")
        steps = [step.written(n) for n, stage in enumerate(self.stages) for step in stage]
        names = unique_names([str(step["name"]) for step in steps])
        steps = [{**step, "name": name} for step, name in zip(steps, names, strict=True)]
        own = {"steps": steps, "on_failure": self.on_failure, "on_shutdown": self.on_shutdown}
        self._declare(self.name, {"cron": cron, **own, **definition})
        return self

    def start(self) -> Started:
        """Stores the whole group in one transaction and releases the first stage."""
        client = self._client()
        members = members_of(client, self.stages, self.on_shutdown)
        new = NewGroup(self.name, self.mode, self.on_failure, members)
        return Started(client, client.groups.create(new))


def plan_of(
    client: Callable[[], Client],
    steps: Iterable[Any],
    *,
    name: str,
    mode: str,
    on_failure: str,
    on_shutdown: str | None,
) -> Plan:
    """Returns the plan of `app.group([…], mode=…)`."""
    found = list(steps)
    made = Plan(client, name, on_failure=on_failure, on_shutdown=on_shutdown, mode=mode)
    if mode == "parallel":
        return made.then(*found)
    for item in found:
        made.then(*item) if mode == "staged" and isinstance(item, (list, tuple)) else made.then(item)
    if not found:
        raise BadInput("a group needs at least one step", field="steps")
    return made


def _check_step(step: object) -> None:
    if not isinstance(step, Step):
        raise BadInput(f"a step is made by task.step(…), not by {type(step).__name__}", field="steps")


class Started:
    """The handle of a stored group.

    Every attribute is read from the database on access.
    """

    def __init__(self, client: Client, group_id: int) -> None:
        self._client = client
        self.id = group_id

    def __repr__(self) -> str:
        return f"<Group {self.id}>"

    @property
    def row(self) -> Group:
        return self._client.groups.get(self.id)

    @property
    def status(self) -> str:
        return self.row.status

    @property
    def jobs(self) -> dict[str, Job]:
        """The last job of each step, by step name."""
        with self._client.database.read() as tx:
            found = groups.members(tx, self.id)
        return {member.step: Job(self._client, member.job_id) for member in found}

    @property
    def results(self) -> dict[str, Any]:
        """The results of the completed steps."""
        group = self.row
        with self._client.database.read() as tx:
            return groups.earlier_results(tx, group.id, group.stages)

    def wait(self, timeout: float | None = None) -> str:
        """Waits until every step has ended. Returns the group's status."""
        deadline = None if timeout is None else time.monotonic() + timeout
        looks = iter(LOOKS)
        while (group := self.row).finished_at is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"group {self.id} is still {group.status} after {timeout:g} s")
            time.sleep(next(looks, LOOKS[-1]))
        return group.status

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """Waits for all steps and returns their results; raises if the group failed."""
        status = self.wait(timeout)
        if status != "COMPLETED":
            raise JobFailed(f"group {self.id} is {status}", status=status, job_id=None)
        return self.results

    def cancel(self) -> Started:
        self._client.groups.cancel(self.id)
        return self

    def retry(self) -> Started:
        return Started(self._client, self._client.groups.retry(self.id))

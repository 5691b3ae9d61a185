"""Scripts to be killed in, about work in stages and what starts it: groups, executions, schedules, templates."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headway.clock import SECOND
from headway.engine.maintenance.pruner import Pruner
from headway.engine.scheduler.scheduler import Scheduler
from headway.engine.tasks.plan import Started, Step
from headway.model.groups.group import NewGroup, NewMember
from headway.store.groups import advance as groups
from tests.support.deadlines import join
from tests.system.support.scripts import fire_due, hurt, script
from tests.system.support.world import Hand, World

DAY = 86_400


def step(world: World, task: str, name: str, **params: object) -> Step:
    return world.tasks[task].using(name=name).step(**params)


def start(world: World, name: str, *stages: Sequence[Step], expect: str | None = "COMPLETED") -> Started:
    """A group, told before it is made and when it was acknowledged."""
    plan = world.app.plan(name)
    for stage in stages:
        plan.then(*stage)
    world.say({"plan": name, "size": sum(map(len, stages))})
    made = plan.start()
    world.say({"group": made.id, "expect": expect})
    return made


@script
def plans(world: World) -> None:
    """A group through its stages, one step retried; and one that fails, whose retry fails again."""
    stages = [
        [step(world, "note", "a", n=1)],
        [step(world, "flaky", "b", fails=1), step(world, "note", "c", n=2)],
        [step(world, "note", "d", n=3)],
    ]
    start(world, "whole", *stages)
    worker = world.worker(slots=2)
    worker.run_dry()
    broken = start(world, "broken", [step(world, "refuses", "a")], [step(world, "note", "b")], expect="PARTIAL")
    worker.run_dry()
    again = broken.retry()
    world.say({"group": again.id, "expect": "PARTIAL"})
    worker.run_dry()
    worker.close()


@script
def siblings(world: World) -> None:
    """Two workers end the last two steps of a stage at the same time."""
    made = start(world, "pair", [step(world, "slow", "a"), step(world, "slow", "b")], [step(world, "note", "c")])
    workers = [world.worker(slots=1) for _ in range(2)]
    for worker in workers:
        worker.tick()
    world.await_began(2)
    world.open_gate.set()
    for worker in workers:
        worker.settle()
    _at_once(workers)
    stage = made.row.stage
    if stage != 1:
        world.say({"broken": f"both steps of stage 0 have ended and stage {stage} is open"})
    workers[0].run_dry()
    workers[1].close()
    workers[0].close()


def _at_once(workers: Sequence[Hand]) -> None:
    threads = [threading.Thread(target=worker.tick) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        join(thread)


@script
def cancel_plans(world: World) -> None:
    """A group is cancelled with a step at work, another before it began; one that waited for the first goes on."""
    world.widen()
    made = start(world, "stopped", [step(world, "slow", "a")], [step(world, "note", "b")], expect=None)
    job = world.tasks["note"].using(name="a").step(n=1).make(world.app.client)
    after = world.app.client.groups.create(
        NewGroup("after", "sequential", "stop", (NewMember(job, 0, "a"),), after_id=made.id)
    )
    world.say({"group": after, "expect": "COMPLETED"})
    other = start(world, "never", [step(world, "note", "a")], expect=None)
    other.cancel()
    world.say({"group_cancelled": other.id})
    worker = world.worker(slots=1)
    worker.turn(leaving=1)
    world.await_began()
    made.cancel()
    world.say({"group_cancelled": made.id})
    worker.tick()
    worker.settle()
    worker.run_dry()
    worker.close()


@script
def mend_plans(world: World) -> None:
    """A stage has ended and nobody opened the next, as no transaction of ours leaves it: recovery goes on with it."""
    start(world, "hurt", [step(world, "note", "a")], [step(world, "note", "b")])
    worker = world.worker(slots=1)
    worker.turn()
    with _nobody_advances():
        worker.tick()
    world.recovery().tick()
    worker.run_dry()
    worker.close()


@contextmanager
def _nobody_advances() -> Iterator[None]:
    advance, groups.advance = groups.advance, lambda *_, **__: None
    try:
        yield
    finally:
        groups.advance = advance


@script
def prune_plans(world: World) -> None:
    """Groups that ended long ago are deleted whole, with the ledger of that time."""
    client = world.app.client
    start(world, "old", [step(world, "note", "a")], [step(world, "note", "b")], expect=None)
    times = [world.later(10), world.later(20)]
    schedule = client.schedules.create("ledger", {"times": times, "steps": [{"task": "note"}]})
    worker = world.worker(slots=1)
    for _ in times:
        world.advance(11)
        fire_due(world)
        worker.run_dry()
    world.advance(3600)
    start(world, "new", [step(world, "note", "a")])
    worker.run_dry()
    worker.close()
    pruner = Pruner(world.database, retention=60.0, artifacts=world.folder / "artifacts")
    while pruner.tick() == 0.0:
        pass
    client.schedules.delete(schedule.id)


def _at_times(world: World, *seconds: float, **fields: object) -> dict[str, object]:
    """A definition that fires so many seconds from now, and no more."""
    times = [world.later(one) for one in seconds]
    steps = [
        {"index": 0, "name": "a", "task": "note"},
        {"index": 1, "name": "b", "task": "flaky", "params": {"fails": 1}},
    ]
    return {"times": times, "steps": steps, **fields}


@script
def ticks(world: World) -> None:
    """Two schedules fire: the executions of one wait for each other, of the other the later one is skipped."""
    client = world.app.client
    for name, overlap in (("waits", "queue"), ("skips", "skip")):
        definition = _at_times(world, 60, 120, 240, overlap=overlap)
        made = client.schedules.create(name, definition)
        world.say({"times_of": made.id, "times": list(made.parsed.times)})
    worker = world.worker(slots=2)
    scheduler = Scheduler(client)
    for seconds in (61, 60):
        world.advance(seconds)
        while scheduler.tick() == 0.0:
            pass
        worker.turn()
    world.advance(600)
    while scheduler.tick() == 0.0:
        pass
    worker.run_dry()
    worker.close()


@script
def calendar(world: World) -> None:
    """What people do to templates and schedules; ticks are decided before each change."""
    client = world.app.client
    template = client.templates.create("daily note", "note", params={"n": 1})
    client.templates.edit(template.id, priority=3)
    made = client.schedules.create("daily", {"interval": 100, "template": "daily note", "catch_up": "all", "cap": 2})
    world.advance(250)
    client.schedules.edit(made.id, {"interval": 200})
    worker = world.worker(slots=1)
    worker.run_dry()
    client.schedules.disable(made.id)
    world.say({"group": client.schedules.run(made.id), "expect": "COMPLETED"})
    client.schedules.enable(made.id)
    client.schedules.see(made.id)
    hurt(world, f"update hw_schedule set next_at = null where id = {made.id}")
    fire_due(world)
    worker.run_dry()
    world.advance(300)
    for execution in client.schedules.backfill(made.id, made.created_at, made.created_at + 500 * SECOND):
        world.say({"group": execution, "expect": "COMPLETED"})
    client.schedules.delete(made.id)
    client.templates.archive(template.id)
    silent = client.schedules.create("silent", _at_times(world, 90 * DAY))
    # As a clock leaves it that was ahead for a moment. No time of the schedule lies in between.
    hurt(world, f"update hw_schedule set decided_until = decided_until + {30 * DAY * SECOND} where id = {silent.id}")
    client.schedules.reset(silent.id)
    worker.run_dry()

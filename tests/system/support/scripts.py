"""What is killed: scripts that do one kind of thing to a system, in a process that may die at any point of it.

A script tells each acknowledgement when it has it, and what it expects to become of a job in the end.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from random import Random
from typing import Any

from headway import fault_points
from headway.cli.database.numbers import go_on_after
from headway.clock import SECOND
from headway.engine.client import limits
from headway.engine.direct.reservation_holder import HolderConfig, ReservationHolder, ReservedPlace
from headway.engine.direct.reservations import End, ReservationRequest
from headway.engine.maintenance.pruner import Pruner
from headway.engine.scheduler.scheduler import Scheduler
from headway.engine.supervisor import Supervisor
from headway.engine.tasks.job_handle import Job
from headway.engine.worker.heartbeat import HeartbeatProcess
from headway.errors import WrongState
from headway.model.jobs.job import SYSTEM
from headway.model.jobs.states import State
from headway.model.queue.policies import Concurrency
from headway.store import workers
from headway.store.queue import waits
from headway.testing import drain
from tests.system.support.world import Hand, World

Script = Callable[[World], None]
SCRIPTS: dict[str, Script] = {}
# These begin with an empty database instead of a migrated one.
FROM_NOTHING = {"migrate"}
# These need their tasks to wait for a time that no test can wait for, or to stand still while others judge.
STEPPING_ONLY = {"failing", "schedule", "prune", "suspend", "damage", "direct", "ticks", "calendar", "prune_plans"}


# What a process does besides when it is started again.
AFTER_RESTART: list[Script] = []


def script(function: Script) -> Script:
    SCRIPTS[function.__name__] = function
    return function


def pulse_of(world: World, worker: Hand) -> HeartbeatProcess:
    """The heartbeat of a worker, without its process."""
    wishes = {"worker_id": worker.who.id, "lease": 60.0, "heartbeat": 2.0, "database": world.url, "listen": None}
    pulse = HeartbeatProcess({**wishes, "pid": os.getpid()})
    pulse.database = world.database
    return pulse


@script
def migrate(world: World) -> None:
    world.make("note", n=1)
    drain(world.app)


@script
def restored(world: World) -> None:
    """After a restore jobs get numbers that no client knows."""
    known = 1_000
    world.make("note", n=1)
    go_on_after(world.url, known)
    assert world.make("note", n=2).id > known
    drain(world.app)


@script
def enqueue(world: World) -> None:
    world.make("note", n=1)
    world.make("note", n=2)
    world.make_many("note", "three", [1, 2, 3])
    for _ in range(2):
        job = world.tasks["note"].using(key="nightly").enqueue(n=7)
        world.say({"key": "nightly", "id": job.id, "created": job.created})
    world.make_using("note", {"priority": 9}, n=3)
    world.make_using("note", {"hold": True}, n=4)
    world.make_many("note", "seven", list(range(7)))
    world.make("skips", expect="SKIPPED")
    world.make("refuses", expect="FAILED", length=1)


@script
def batch(world: World) -> None:
    """Claims and ends of many jobs share a transaction."""
    world.widen()
    world.make_many("note", "first", list(range(6)))
    worker = world.worker(slots=4)
    worker.turn()
    world.make_many("note", "second", list(range(3)))
    world.make("skips", expect="SKIPPED")
    worker.run_dry()
    worker.close()


@script
def one_by_one(world: World) -> None:
    """The default lane: one job at a time, whatever the slots."""
    for n in range(4):
        world.make("note", n=n)
    world.make("flaky", fails=1)
    worker = world.worker(slots=4)
    worker.run_dry()
    worker.close()
    drain(world.app)


@script
def here(world: World) -> None:
    """`headway.testing.drain`: the claim and the end in transactions of their own."""
    world.make_many("note", "few", [1, 2, 3])
    world.make("steps", upto=2)
    drain(world.app)


@script
def failing(world: World) -> None:
    """Failures with a retry, until they are exhausted or succeed."""
    world.widen()
    world.make("flaky", fails=2)
    world.make("hopeless", expect="FAILED", length=3)
    world.make_using("hopeless", {"retry": 0}, expect="FAILED")
    world.make("refuses", expect="FAILED")
    worker = world.worker(slots=2)
    worker.run_dry()
    worker.close()


@script
def waiting(world: World) -> None:
    """Verbs on jobs that wait."""
    first, second, third, fourth = (world.make("note", n=n, expect=None) for n in range(4))
    first.cancel()
    world.say({"cancelled": first.id})
    second.interrupt()
    world.say({"paused": second.id})
    second.resume()
    world.say({"resumed": second.id})
    world.say({"editing": third.id})
    third.edit(params={"n": 33, "batch": ""})
    world.say({"edited": third.id, "params": {"n": 33, "batch": ""}})
    fourth.move(to="top")
    fourth.edit(priority=3)
    world.say({"edited": fourth.id, "priority": 3})
    fifth = world.make("note", n=5)
    fifth.move(before=second.id)
    second.move(after=third.id)
    sixth = world.make("note", n=6)
    sixth.move(rank=2)
    world.app.client.reorder([second.id, third.id, fifth.id])
    world.say({"order": [fourth.id, sixth.id, second.id, third.id, fifth.id]})
    world.worker(slots=1).run_dry()


@script
def respace(world: World) -> None:
    """Moves between the same two neighbours until the gap is used up and the neighbourhood is respaced."""
    left, right, *others = (world.make("note", n=n) for n in range(9))
    order: list[int] = []
    for job in others:
        job.move(before=right.id)
        order.append(job.id)
    world.say({"order": [left.id, *order, right.id]})


@script
def paused_queue(world: World) -> None:
    world.make("note", n=1)
    world.app.client.pause_queue(note="maintenance")
    worker = world.worker()
    worker.turn()
    if worker.claimed:
        world.say({"broken": "a job was claimed from a paused queue"})
    world.app.client.resume_queue()
    worker.run_dry()
    worker.close()


@script
def stops(world: World) -> None:
    """Cancel and interrupt of running work, heard by the beat and by the worker's own look; then what a person does."""
    world.widen()
    jobs = [world.make("slow", n=n, expect=None) for n in range(3)] + [world.make("sleeper", expect=None)]
    worker = world.worker(slots=4)
    worker.turn(leaving=4)
    world.await_began(4)
    jobs[0].cancel()
    world.say({"cancelled": jobs[0].id})
    for job in jobs[1:]:
        job.interrupt()
        world.say({"paused": job.id})
    pulse_of(world, worker).beat()
    worker.tick()
    worker.settle()
    worker.tick()
    jobs[1].resume()
    world.say({"resumed": jobs[1].id})
    jobs[2].resolve({"by": "hand"})
    world.say({"resolved": jobs[2].id, "result": {"by": "hand"}})
    jobs[3].release()
    world.say({"released": jobs[3].id})
    again = jobs[3].retry()
    world.say({"retried": jobs[3].id, "by": again.id})
    world.open_gate.set()
    worker.run_dry()
    worker.close()


@script
def cancel_wins(world: World) -> None:
    """A cancel that comes before an interrupt, and one that comes too late."""
    job = world.make("slow", expect=None)
    worker = world.worker(slots=1)
    worker.turn(leaving=1)
    world.await_began()
    job.interrupt()
    world.say({"paused": job.id})
    job.cancel()
    world.say({"cancelled": job.id})
    worker.tick()
    worker.settle()
    worker.tick()
    other = world.make("slow", expect=None)
    worker.turn(leaving=1)
    world.await_began()
    world.open_gate.set()
    worker.settle()
    other.cancel()
    world.say({"cancelled": other.id})
    worker.run_dry()
    worker.close()


@script
def person(world: World) -> None:
    """What a person does with a job that waits for one: each verb, on jobs that were lost or interrupted."""
    jobs = [world.make_using("slow", {"on_lost": "hold"}, n=n, expect=None) for n in range(4)]
    worker = world.worker(slots=1)
    for job in jobs:
        worker.turn(leaving=1)
        world.await_began()
        job.interrupt()
        world.say({"paused": job.id})
        worker.tick()
        worker.settle()
    worker.tick()
    jobs[0].retry(params={"n": 100})
    jobs[1].cancel()
    world.say({"cancelled": jobs[1].id})
    jobs[2].resolve([1, 2])
    world.say({"resolved": jobs[2].id, "result": [1, 2]})
    jobs[3].release()
    world.say({"released": jobs[3].id})
    world.open_gate.set()
    worker.run_dry()


@script
def retry_now(world: World) -> None:
    """A waiting automatic retry that a person brings forward, and manual retries of a chain that is exhausted."""
    job = world.make_using("hopeless", {"retry": {"max_attempts": 1, "base_delay": 0.05}}, expect="FAILED")
    worker = world.worker(slots=1)
    worker.turn()
    worker.tick()
    again = job.retry(priority=5)
    world.say({"retried": job.id, "by": again.id})
    worker.run_dry()
    new = world.app.job(again.id).retry(budget={"tokens": 5})
    world.say({"retried": again.id, "by": new.id})
    worker.run_dry()


@script
def reports(world: World) -> None:
    """Checkpoints, progress, log, spending within and beyond the budget, attached files."""
    world.widen()
    world.make("steps", upto=4)
    world.make_using("spends", {"budget": {"tokens": 10}}, tokens=20, expect="FAILED")
    world.make("attaches", name="first")
    worker = world.worker(slots=3)
    worker.run_dry()
    world.make("attaches", name="second")
    world.make_using("steps", {"budget": {"tokens": 100}}, upto=2)
    worker.run_dry()
    worker.close()


@script
def inner_waits(world: World) -> None:
    """A claim records for which job it waits, for another one then, and forgets it at the end."""
    world.widen()
    slow = world.make("slow", n=1, expect=None)
    other = world.make_using("note", {"hold": True}, n=2)
    worker = world.worker(slots=1)
    worker.turn(leaving=1)
    world.await_began(1)
    claim = (slow.id, worker.pool.running[slow.id].claim.fence)
    for awaited in (other.id, slow.id):
        world.database.repeat("record_wait", waits.record, claim, awaited)
    world.database.repeat("forget_wait", lambda tx: waits.forget(tx, claim))
    slow.cancel()
    world.say({"cancelled": slow.id})
    pulse_of(world, worker).beat()
    worker.tick()
    worker.settle()
    worker.tick()
    worker.close()


@script
def schedule(world: World) -> None:
    """Jobs for later, and jobs that were to start before now."""
    world.make_using("note", {"delay": 60}, n=1)
    world.make_using("note", {"not_before": world.later(90)}, n=2)
    world.make_using("note", {"expires_at": world.later(45), "hold": True}, n=3, expect="SKIPPED")
    world.make_using("note", {"delay": 200, "expires_at": world.later(100)}, n=4, expect="SKIPPED")
    late = world.make_using("note", {"delay": 500}, n=5)
    late.edit(not_before=world.database.clock.now() + 80 * SECOND)
    worker = world.worker(slots=1)
    worker.run_dry()
    worker.close()


@script
def prune(world: World) -> None:
    """Chains that ended long ago are deleted, with the files only they had."""
    world.make("hopeless", expect="pruned")
    world.make("attaches", name="gone", expect="pruned")
    worker = world.worker(slots=1)
    worker.run_dry()
    worker.close()
    world.advance(3600)
    middle = world.database.clock.now()
    world.make("attaches", name="kept")
    world.make("note", n=1)
    drain(world.app)
    pruner = Pruner(world.database, retention=60.0, artifacts=world.folder / "artifacts")
    while pruner.prune(middle):
        world.say({"pruned": True})
    world.make("note", n=2)


@script
def on_targets(world: World) -> None:
    """Targets: one after the other, paused and let go on, moved; then another policy with jobs in the queue."""
    limits.settle(world.database, Concurrency(), {"gpu": 1}, actor=SYSTEM, adopt=True)
    task, client = world.app.tasks["note"], world.app.client
    worker = world.worker(slots=3)
    task.using(target="desk").enqueue(n=1)
    worker.run_dry()
    client.pause_target("desk", note="not now")
    client.resume_target("desk")
    second, third = (task.using(target="desk").enqueue(n=n) for n in (2, 3))
    task.using(target="shelf", resources=["gpu"]).enqueue(n=4)
    third.move(before=second.id)
    worker.run_dry()
    for n in (5, 6):
        task.enqueue(n=n)
    limits.settle(world.database, Concurrency(policy="per_task"), {"gpu": 2}, actor=SYSTEM, adopt=True)
    worker.run_dry()


@script
def direct(world: World) -> None:
    """Reservations: made, let in, given back, renewed, expired and pruned, beside jobs on the same lane."""
    limits.settle(world.database, Concurrency(), {"gpu": 1}, actor=SYSTEM, adopt=True)
    world.make("note", n=1)
    holder = ReservationHolder(world.database, HolderConfig())
    holder.register()
    first, second = ReservedPlace(), ReservedPlace()
    for place in (first, second):
        holder.reserve(
            place, ReservationRequest(world.app.client.tenant_id, "ada", task="note", params="{}"), actor=SYSTEM
        )
    worker = world.worker(slots=1)
    worker.turn()
    if worker.claimed:
        world.say({"broken": "a job was claimed on a reserved lane"})
    holder.tick()
    holder.release(first, End("COMPLETED"))
    holder.tick()
    if not second.granted:
        world.say({"broken": "the next one was not let in"})
    holder.release(second, End("FAILED", "as it happens"))
    worker.run_dry()
    client = world.app.client
    outside = client.reserve(resources=["gpu"], ttl=60)
    client.renew_reservation(outside.id)
    client.release_reservation(outside.id)
    client.reserve(resources=["gpu"], ttl=60)
    world.make("note", n=2)
    world.advance(61)
    world.recovery().tick()
    holder.close()
    Pruner(world.database, retention=60.0, artifacts=world.folder).prune_reservations(world.database.clock.now())
    worker.run_dry()
    worker.close()


@script
def shutdown(world: World) -> None:
    """The supervisor's own way to the end: what does not finish within the grace is interrupted."""
    world.widen()
    world.make("slow", n=0)
    world.make_using("slow", {"retry": 0}, n=1, expect=None)
    world.make_using("slow", {"on_shutdown": "resume"}, n=2)
    supervisor = Supervisor(make_worker=lambda: Hand(world), recovery=world.recovery(), grace=0.0)
    supervisor.start()
    world.await_began(3)
    supervisor.stop()
    supervisor.recovery.join(5.0)


@script
def zombie(world: World) -> None:
    """A worker is given up while its work goes on; its late writes come after others took over."""
    world.widen()
    for task in ("late", "deaf"):
        world.make(task)
        world.make_using(task, {"on_lost": "hold"})
    old = world.worker(slots=4)
    old.turn(leaving=4)
    world.await_began(4)
    world.database.transact("give_up", lambda tx: workers.retire(tx, old.who.id, "presumed dead"))
    world.recovery().tick()
    if not _is_gone(world, old):
        world.say({"broken": "a worker that was given up could renew its lease"})
    for job_id in _in_state(world, State.ERROR):
        world.app.client.resume(job_id)
    new = world.worker(slots=4)
    new.tick()
    world.await_began(2)
    world.open_gate.set()
    old.settle()
    old.tick()
    new.settle()
    new.run_dry()
    old.close()
    new.close()


def _is_gone(world: World, worker: Hand) -> bool:
    with world.database.transaction("beat") as tx:
        return not workers.beat(tx, worker.who.id, 60.0)


def _in_state(world: World, *states: State) -> list[int]:
    with world.database.read() as tx:
        return [row[0] for row in tx.run("verify_jobs", after=0, limit=10_000) if State(row[3]) in states]


@script
def stuck(world: World) -> None:
    """Work that does not stop keeps its claim until its process ends."""
    job = world.make("late", expect=None)
    worker = world.worker(slots=1)
    worker.turn(leaving=1)
    world.await_began()
    job.cancel()
    world.say({"cancelled": job.id})
    worker.tick()
    for running in worker.pool.running.values():
        assert running.asked_at is not None
        running.asked_at -= 3600.0  # as if an hour had passed
    worker.tick()
    if not worker.only_stuck_left:
        world.say({"broken": "a worker did not notice that its work is stuck"})
    world.make("note", n=1)


@script
def crowd(world: World) -> None:
    """Dies in the middle of several running jobs, whatever happens: what recovery has to deal with."""
    world.widen()
    for n in range(2):
        world.make("slow", n=n)
    world.make_using("slow", {"on_lost": "hold"}, n=2)
    world.make_using("slow", {"on_lost": "fail"}, n=3, expect=None)
    world.make_using("slow", {"retry": 0}, n=4, expect=None)
    cancelled = world.make("slow", n=5, expect=None)
    interrupted = world.make("slow", n=6, expect=None)
    for n in range(3):
        world.make("note", n=n)
    worker = world.worker(slots=7)
    worker.tick()
    world.await_began(7)
    cancelled.cancel()
    world.say({"cancelled": cancelled.id})
    interrupted.interrupt()
    world.say({"paused": interrupted.id})
    os.kill(os.getpid(), signal.SIGKILL)


@script
def neighbours(world: World) -> None:
    """Recovery beside a live worker on the same host, after another one there was killed."""
    world.widen()
    dead = _killed_in_a_fork(world)
    ours = world.worker(slots=1)
    alive = world.make("slow", n=1)
    ours.turn(leaving=1)
    world.await_began()
    world.recovery().tick()
    if alive.status != "RUNNING":
        world.say({"broken": f"recovery took the job of a live worker: it is {alive.status}"})
    if world.app.job(dead).status == "RUNNING":
        world.say({"broken": f"job {dead} of a killed worker is still RUNNING after recovery"})
    world.open_gate.set()
    ours.run_dry()
    ours.close()


def _killed_in_a_fork(world: World, *tasks: str) -> int:
    """A job that another process had when it was killed. The database is closed while we fork."""
    for task in tasks:
        world.make(task)
    job = world.make("slow", n=0)
    world.close()
    pid = os.fork()
    if pid == 0:
        fault_points.arm(None)  # its points are not the script's: counted here, those after it would never be reached
        worker = world.worker(slots=3)
        worker.pool.free = [2, 1]  # not the slot that the survivor has
        worker.tick()
        world.await_began()
        worker.settle(leaving=1)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    return job.id


@script
def left_behind(world: World) -> None:
    """A killed worker's child process: recovery ends it before it settles the jobs."""
    world.widen()
    _killed_in_a_fork(world, "plain")
    world.recovery().tick()


@script
def suspend(world: World) -> None:
    """The clock jumps over many leases, as after a suspend: a live worker has not had its chance to renew yet."""
    job = world.make("slow", n=0)
    worker = world.worker(slots=1)
    worker.turn(leaving=1)
    world.await_began()
    recovery = world.recovery()
    recovery.tick()
    world.advance(10_000)
    recovery.tick()
    if job.status != "RUNNING":
        world.say({"broken": f"recovery gave up a worker by the wall clock alone: its job is {job.status}"})
    pulse = pulse_of(world, worker)
    pulse.beat()
    worker.lease.renew()
    world.open_gate.set()
    worker.run_dry()
    worker.close()
    pulse.record_end("its lease was not renewed")


@script
def processes(world: World) -> None:
    """Plain functions in child processes, which are stored before they run user code."""
    world.make("plain", steps=2)
    world.make("plain", steps=1)
    worker = world.worker(slots=1)
    worker.run_dry()
    worker.close()


@script
def damage(world: World) -> None:
    """What no transaction of ours leaves behind and a damaged database may hold: recovery mends it."""
    world.make("slow", n=0, expect=None)
    world.make_using("hopeless", {"retry": 0}, expect="FAILED")
    worker = world.worker(slots=1)
    worker.turn(leaving=1)
    world.await_began()
    hurt(world, "update hw_run set status = 6, finished_at = 1 where finished_at is null")
    world.recovery().tick()
    world.open_gate.set()
    worker.settle()
    worker.run_dry()
    hurt(world, "update hw_job set exhausted = 0 where status = 7")
    world.recovery().tick()
    worker.close()


def hurt(world: World, text: str) -> None:
    def change(tx: object) -> None:
        tx.connection.execute(text)  # type: ignore[attr-defined]

    world.database.transact("damage", change)


def mixed(seed: int) -> Script:
    """A script of its own for every seed: all verbs on a handful of jobs, turns in between, in any order."""

    def run(world: World) -> None:
        rng = Random(seed)
        world.widen(rng.choice([None, 1, 2]))
        worker = world.worker(slots=rng.randint(1, 3))
        jobs: list[Job] = []
        for _ in range(rng.randint(12, 20)):
            rng.choice(ACTS)(world, worker, jobs, rng)
        world.open_gate.set()
        worker.settle()
        worker.run_dry()

    return run


def _act_make(world: World, worker: Hand, jobs: list[Job], rng: Random) -> None:
    works: list[tuple[str, dict[str, Any]]]
    works = [("note", {"n": 1}), ("flaky", {"fails": 1}), ("hopeless", {}), ("slow", {}), ("steps", {"upto": 2})]
    task, params = rng.choice(works)
    some: list[dict[str, Any]]
    some = [{}, {}, {"priority": rng.randint(0, 9)}, {"delay": world.base_delay / 2}, {"hold": True}, {"key": "k"}]
    wishes = rng.choice(some)
    job = world.tasks[task].using(**wishes).enqueue(**params)
    if job.created:
        world.say({"made": [job.id], "expect": None, "length": None, "params": [params]})
    jobs.append(job)


def _act_turn(world: World, worker: Hand, jobs: list[Job], rng: Random) -> None:
    worker.tick()
    quick = [r for r in worker.pool.running.values() if r.claim.task != "slow" or r.asked_at is not None]
    worker.settle(leaving=len(worker.pool.running) - len(quick))


def _act_verb(world: World, worker: Hand, jobs: list[Job], rng: Random) -> None:
    if not jobs:
        return
    job = rng.choice(jobs)
    verb = rng.choice(["cancel", "interrupt", "resume", "resolve", "release", "retry", "edit", "move"])
    told = {"cancel": "cancelled", "interrupt": "paused", "release": "released"}.get(verb)
    try:
        match verb:
            case "resolve":
                job.resolve({"by": "hand"})
                world.say({"resolved": job.id, "result": {"by": "hand"}})
            case "retry":
                again = job.retry()
                jobs.append(again)
                world.say({"retried": job.id, "by": again.id})
            case "edit":
                job.edit(priority=rng.randint(0, 9))
            case "move":
                job.move(to=rng.choice(["top", "bottom", "front"]))
            case _:
                getattr(job, verb)()
    except WrongState:
        return
    if told is not None:
        world.say({told: job.id})


def _act_time(world: World, worker: Hand, jobs: list[Job], rng: Random) -> None:
    world.advance(rng.choice([0.001, 0.002]) if world.clock is None else rng.choice([1.0, 10.0, 60.0]))


def _act_recover(world: World, worker: Hand, jobs: list[Job], rng: Random) -> None:
    world.recovery().tick()


def _act_gate(world: World, worker: Hand, jobs: list[Job], rng: Random) -> None:
    world.open_gate.set()
    worker.settle()
    world.open_gate.clear()


def _act_die(world: World, worker: Hand, jobs: list[Job], rng: Random) -> None:
    """A second worker of this process is given up while its work goes on."""
    other = world.worker(slots=1)
    other.tick()
    world.database.transact("give_up", lambda tx: workers.retire(tx, other.who.id, "presumed dead"))
    world.recovery().tick()
    other.lease.abandon("it was given up")
    other.settle()
    other.tick()
    other.drain()
    other.close()


ACTS = [*[_act_make] * 6, *[_act_turn] * 5, *[_act_verb] * 6, _act_time, _act_recover, _act_gate, _act_die]


def find(name: str) -> Script:
    """A script by its name; `mixed-17` is the one of seed 17."""
    kind, _, seed = name.partition("-")
    return mixed(int(seed)) if kind == "mixed" else SCRIPTS[kind]


def fire_due(world: World) -> None:
    """The scheduler's turns until nothing is due."""
    scheduler = Scheduler(world.app.client)
    while scheduler.tick() == 0.0:
        pass


def restart(world: World, style: int) -> None:
    """What a process does that is started again: recovery, then work until nothing is left."""
    world.open_gate.set()
    world.recovery().tick()
    world.app.client.resume_queue()
    fire_due(world)
    if style % 2:
        while drain(world.app) or world.wait_for_due():
            pass
    else:
        world.worker(slots=1 + style % 3).run_dry()
    for act in AFTER_RESTART:
        act(world)


def held(world: World) -> list[int]:
    """What waits for a person. A step whose stage is not open waits for the ones before it."""
    text = "select id from hw_job where status in (4, 5) or (status = 0 and (hold = 1 or group_id is null)) order by id"
    with world.database.read() as tx:
        return [job_id for (job_id,) in tx.connection.execute(text).fetchall()]  # type: ignore[attr-defined]


def unfinished(world: World) -> list[int]:
    """What should have been done without one."""
    return _in_state(world, State.SCHEDULED, State.QUEUED, State.RUNNING)


def let_go(world: World) -> None:
    """A person decides about everything that waits for one, until nothing does."""
    client = world.app.client
    while waiting := held(world):
        for job_id in waiting:
            try:
                client.resume(job_id)
            except WrongState:
                client.release(job_id)
        restart(world, 0)

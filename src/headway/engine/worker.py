"""The worker: free slots, claim, hand over, collect; ends and claims share a transaction and a commit."""

from __future__ import annotations

import logging
import math
import os
import secrets
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from headway.engine import notes, processes
from headway.engine.carrying import carried_by
from headway.engine.children import adopt, disown
from headway.engine.context import Stop
from headway.engine.finish import Ended, lock_groups, send_ends
from headway.engine.heartbeat import TELL, Heartbeat
from headway.engine.loop import WokenLoop
from headway.engine.registry import Registry
from headway.engine.run import NOTHING, STOP_GRACE, AsyncRunner, Running, SlotRunner
from headway.engine.secrets import NO_VAULT, Vault
from headway.engine.sink import JobSink
from headway.engine.slot import Child
from headway.errors import CommitUnknown, HeadwayError, LeaseLost, Unreachable
from headway.faults import point
from headway.model.job import Actor, Claim
from headway.model.outcome import Interrupted, Lost, Outcome
from headway.store import choosing, claim_view, claims, reports, workers
from headway.store.db import Database, Tx
from headway.store.lanes import Lanes

log = logging.getLogger("headway")
POLL_SECONDS = 5.0
LOCKED_SECONDS = 0.1
# Work that was asked to stop and is still there after its grace and this is said to be stuck.
STUCK_AFTER = STOP_GRACE + 5.0


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a worker is to work."""

    slots: int = 4
    tasks: Sequence[str] | None = None
    lease: float = 60.0
    heartbeat: float = 2.0
    grace: float = 30.0
    artifacts: Path = Path("headway-artifacts")
    listen: str | None = None
    vault: Vault = NO_VAULT


def new_identity() -> workers.Identity:
    pid = os.getpid()
    return workers.Identity(
        secrets.randbits(62) | 1, processes.host(), processes.boot_id(), pid, processes.start_time(pid) or 0
    )


class Worker(WokenLoop):
    """One incarnation. `tick` is one turn: end what has ended, claim what fits, hand it over."""

    name = "worker"

    def __init__(self, database: Database, registry: Registry, wishes: Wishes) -> None:
        super().__init__(database.waiter())
        self.database = database
        self.registry = registry
        self.wishes = wishes
        self.who = new_identity()
        self.actor = Actor("worker", workers.worker_name(self.who.id), f"{self.who.host}:{self.who.pid}")
        self.serves = registry.matching(wishes.tasks)
        self.lanes = Lanes(database)
        self.notes = notes.Notes()
        self.notes_at: float | None = None
        self.running: dict[int, Running] = {}
        self.free = list(range(wishes.slots))
        self.at_work: set[int] = set()
        self.ended_work: deque[tuple[Running, Outcome]] = deque()
        self.renewed = time.monotonic()
        self.abandoned = False
        self.claimed = 0
        self.finished = 0
        self.due: float | None = None
        # Jobs that others had in hand when we wanted them: what they leave room for is claimed without them, at once.
        self.missed: set[int] = set()
        # The one kind of work that there was at the last claim: a bucket.
        self.last_kind: int | None = None
        # Whether somebody may have made work since the last look; and whether that was so when we last went at once.
        self.nudged = False
        self.keen = True
        self.draining = False
        self.said_draining = False
        self.stuck = False
        self.uncertain = False
        self.alone = False
        self.at_turn = False
        self.heartbeat: Heartbeat | None = None
        # Work may hold the interpreter from its first moment: nothing is claimed before the heartbeat is up.
        self.beating = True
        self.async_runner: AsyncRunner | None = None
        self.slot_runners: dict[int, SlotRunner] = {}

    # --- life ---

    def register(self) -> None:
        """Makes the worker known, then starts what renews its lease."""
        self.database.transact("register", self._register)
        self.beating = False
        self.heartbeat = Heartbeat(
            {
                "worker_id": self.who.id,
                "lease": self.wishes.lease,
                "heartbeat": self.wishes.heartbeat,
                "database": self.database.url,
                "listen": self.wishes.listen,
                "pid": self.who.pid,
            },
            self.hear,
            idle=True,
        )

    def _register(self, tx: Tx) -> None:
        tasks = sorted(self.serves)
        known = [(task, *self.registry.told(task)) for task in tasks]
        slots, lease = self.wishes.slots, self.wishes.lease
        workers.register(tx, self.who, self.actor, slots=slots, tasks=tasks, lease=lease, known=known)

    def renew(self) -> None:
        """A beat of our own, for a moment at which the heartbeat's may be late."""
        began = time.monotonic()
        if not self.database.transact("renew", lambda tx: workers.beat(tx, self.who.id, self.wishes.lease)):
            self.hear({"gone": True})
            return
        self.renewed = began
        if self.heartbeat is not None:
            self.heartbeat.reassure(began)

    def hear(self, said: dict[str, Any]) -> None:
        """What the heartbeat says: stop requests, a lease that is lost, one that cannot be renewed."""
        if "beat" in said:
            self.renewed = said["beat"]
            self.abandoned = self.abandoned and bool(self.at_work)
            for job_id, fence, _ in said["stops"]:
                self.stop_job(job_id, fence)
            if not self.beating:
                self.beating = True
                self.waiter.nudge()
        if "late" in said and time.monotonic() - self.renewed > self.wishes.lease * TELL:
            log.warning("could not renew the lease for %.0f s (%s): stopping all work", said["late"], said["why"])
            self.abandon(f"the worker could not renew its lease for {said['late']:.0f} s and stopped its work")
        if said.get("gone"):
            self.abandon("the worker was given up")
            self.draining = True
            self.stop()

    def abandon(self, why: str) -> None:
        """Ends all work because its claims may not be ours any more."""
        self.abandoned = True
        for running in list(self.running.values()):
            running.override = Lost(why)
            running.request_stop(0.0)
        self._say_stopped()
        self.waiter.nudge()

    def _say_stopped(self) -> None:
        if self.abandoned and not self.at_work and self.heartbeat is not None:
            self.heartbeat.reassure()

    def stop_job(self, job_id: int, fence: int) -> None:
        running = self.running.get(job_id)
        if running is not None and running.claim.fence == fence and running.asked_at is None:
            running.request_stop(STOP_GRACE)

    # --- one turn ---

    def wait(self, seconds: float) -> None:
        # Also for no time at all: a nudge that the next turn answers anyway would be another look, for nothing.
        self.nudged = self.waiter.wait(seconds)

    def tick(self) -> float:
        self.at_turn = True  # before `draining` is looked at: who sets that and then sees no turn gets no new claim
        try:
            return self._tick()
        finally:
            self.at_turn = False

    def busy(self) -> bool:
        """Something runs, or may be about to."""
        return self.at_turn or bool(self.running)

    def _tick(self) -> float:
        if self.uncertain:
            self._read_back()
        if time.monotonic() - self.renewed > self.wishes.lease / 3:
            self.renew()
        ended = self._collect()
        pending = self._due_notes(ended)
        room = len(self.free) + len(ended) if self.beating and not (self.draining or self.stuck) else 0
        missed, self.missed = self.missed, set()
        if ended or pending or self.draining != self.said_draining:
            self._turn(ended, pending, room, missed)
        else:
            self._seek(room, missed)
        self._judge_stuck()
        return self._delay()

    def _collect(self) -> list[tuple[Running, Outcome]]:
        ended: list[tuple[Running, Outcome]] = []
        while self.ended_work and not (self.alone and ended):
            ended.append(self.ended_work.popleft())
        return ended

    def _due_notes(self, ended: list[tuple[Running, Outcome]]) -> list[notes.Pending]:
        """What was reported, when it has waited long enough or its work has ended."""
        if self.notes_at is None or not (ended or time.monotonic() >= self.notes_at):
            return []
        self.notes_at = None
        return self.notes.take()

    def notes_due(self) -> None:
        if self.notes_at is None:
            self.notes_at = time.monotonic() + notes.GATHER_SECONDS
            self.waiter.nudge()

    def _seek(self, room: int, missed: set[int]) -> None:
        """Where others write beside us, a nudge is answered without a look before: half the round trips from a job's
        commit to its claim. But not by who did so in vain last time, or while somebody else is claiming."""
        if (
            self.nudged
            and self.keen
            and room > 0
            and not self.database.one_writer
            and self._claim_at_once(room, missed)
        ):
            return
        if self._look(room):
            self._turn([], [], room, missed)

    def _claim_at_once(self, room: int, missed: set[int]) -> bool:
        """Takes new claims, unless somebody else is at it. Whether it could."""
        slots = self.free[:room]
        try:
            fresh = self.database.transact("turn", lambda tx: self._take_if_free(tx, slots, missed), by=self.waiter)
        except CommitUnknown:
            self.uncertain = True
            raise
        if fresh is None:
            return False
        self.keen = bool(fresh)
        self._begin(fresh, self.free)
        return True

    def _take_if_free(self, tx: Tx, slots: list[int], missed: set[int]) -> list[Claim] | None:
        tx.send("pin_plans")
        self._hear_stops(tx)
        found = claims.look_if_free(tx, self.lanes, self.actor, self._likely(slots))
        return None if found is None else self._take(tx, *found, slots=slots, missed=missed)

    def _look(self, room: int) -> bool:
        """Looks before it takes the write lock, so that an idle system is only read: is there something to claim?

        A wake-up may also mean a stop request, or a new time to wait for.
        """
        with self.database.read() as tx:
            view = claim_view.glance(tx)
            self._remember(view)
            self._hear_stops(tx)
            if view.due_now or room == 0:
                return view.due_now
            if claims.unsettled(tx, view, self.lanes) or choosing.lets_in(tx, view, self.lanes):
                return True
            return bool(choosing.pick(tx, view, self.lanes, self.serves.__contains__, room))

    def _hear_stops(self, tx: Tx) -> None:
        if self.running:
            for job_id, fence, _ in workers.stop_requests(tx, self.who.id):
                self.stop_job(job_id, fence)

    def _remember(self, view: claim_view.View) -> None:
        """When to look again, by our own clock."""
        self.due = None if view.due is None else time.monotonic() + max(0, view.due - view.now) / 1e6

    def finds_work(self) -> bool:
        """Whether a free slot would get a job right now."""
        return self._look(1)

    def _turn(
        self, ended: list[tuple[Running, Outcome]], pending: list[notes.Pending], room: int, missed: set[int]
    ) -> None:
        """One transaction: store reports, end claims, take new ones."""
        done = [running.ended(outcome) for running, outcome in ended]
        # The slot used last comes first: its child process is warm.
        slots = [running.claim.slot for running, _ in ended] + self.free
        lost: list[Claim] = []
        draining = self.draining
        try:
            fresh = self.database.transact(
                "turn", lambda tx: self._write(tx, done, pending, slots[:room], lost, missed), by=self.waiter
            )
        except BaseException as error:
            self.uncertain = isinstance(error, CommitUnknown)
            self._undo(ended, pending, alone=not isinstance(error, HeadwayError))
            raise
        self.said_draining = draining
        for running, _ in ended:
            self.running.pop(running.claim.job_id, None)
            self.notes.end(running.claim.job_id)
        self.finished += len(ended)
        self.alone = self.alone and bool(self.ended_work)
        self._begin(fresh, slots)
        if lost:
            self.reject(lost)

    def _begin(self, fresh: list[Claim], slots: list[int]) -> None:
        """These were claimed, of those slots that were free."""
        taken = {claim.slot for claim in fresh}
        self.free = [slot for slot in slots if slot not in taken]
        if fresh:
            self.keen = True
            self._hand_over(fresh)

    def _undo(self, ended: list[tuple[Running, Outcome]], pending: list[notes.Pending], *, alone: bool) -> None:
        """What has ended is kept and tried again. What nobody foresaw must not keep the others from being recorded:
        from then on each goes alone, and the one that failed goes to the end."""
        self.alone = alone
        if alone:
            self.ended_work.extend(ended)
        else:
            self.ended_work.extendleft(reversed(ended))
        self.notes.give_back(pending)
        if pending:
            self.notes_at = time.monotonic()

    def _write(
        self,
        tx: Tx,
        ended: list[Ended],
        pending: list[notes.Pending],
        slots: list[int],
        lost: list[Claim],
        missed: set[int],
    ) -> list[Claim]:
        lost.clear()
        tx.send("pin_plans")
        locked = lock_groups(tx, ended)  # before any job
        if pending:
            lost += notes.store(tx, self.who.id, pending)
        stale = send_ends(tx, self.who.id, self.actor, ended, locked) if ended else list
        if self.draining != self.said_draining:
            workers.set_state(tx, self.who.id, "draining" if self.draining else "live", self.actor)
        view, elsewhere = claims.lock_and_look(tx, self.lanes, self.actor, self._likely(slots))
        lost += [e.claim for e in stale()]
        return self._take(tx, view, elsewhere, slots=slots, missed=missed, freed=bool(ended))

    def _likely(self, slots: Sequence[int]) -> claim_view.Likely | None:
        return claim_view.Likely(self.last_kind, len(slots)) if self.last_kind and slots else None

    def _take(
        self,
        tx: Tx,
        view: claim_view.View,
        elsewhere: bool,
        *,
        slots: list[int],
        missed: set[int],
        freed: bool = False,
    ) -> list[Claim]:
        """The lock is held, and this is what was seen under it: takes what fits, and commits."""
        self._remember(view)
        view.barred |= missed
        fresh = claims.claim(
            tx,
            view,
            self.lanes,
            worker_id=self.who.id,
            actor=self.actor,
            knows=self.serves.__contains__,
            slots=slots,
            freed=freed,
        )
        self.missed = view.missed
        if view.ready:
            self.last_kind = next(iter(view.ready)) if len(view.ready) == 1 else None
        if elsewhere or missed:  # somebody else has in hand what is due, or was in turn: not at once again
            self.due = min(self.due or math.inf, time.monotonic() + LOCKED_SECONDS)
        return fresh

    def reject(self, lost: Sequence[Claim]) -> None:
        """These claims wrote under a stale fence: it is recorded once, and their work ends."""
        for claim in {claim.job_id: claim for claim in lost}.values():
            held = (claim.job_id, claim.fence)
            self.database.transact("reject", lambda tx, held=held: reports.reject_late(tx, held, self.actor))  # type: ignore[misc]
            running = self.running.get(claim.job_id)
            if running is not None and running.claim.fence == claim.fence:
                running.override = Lost("the claim was lost")
                running.request_stop(0.0)

    # --- running ---

    def _hand_over(self, fresh: list[Claim]) -> None:
        point("claim.handed_over")
        self.uncertain = True  # until they are at work: should the database be away now, they are read back
        carried = carried_by(self.database, self.registry, fresh)
        self.uncertain = False
        self.claimed += len(fresh)
        batch: list[Running] = []
        for claim in fresh:
            spec, before = self.registry.get(claim.task), carried.get(claim.job_id, NOTHING)
            running = Running(claim, spec, JobSink(self, claim), before, vault=self.wishes.vault)
            self.running[claim.job_id] = running
            self.at_work.add(claim.job_id)
            if claim.carries:
                self.notes.begin(claim.job_id, running.carried.spent)
            if running.spec.isolation == "async":
                batch.append(running)
            else:
                self._slot_runner(claim.slot).start(running)
        if batch:
            self.async_runner = self.async_runner or AsyncRunner(self.work_ended)
            self.async_runner.start(batch)

    def _slot_runner(self, slot: int) -> SlotRunner:
        if slot not in self.slot_runners:
            self.slot_runners[slot] = SlotRunner(slot, self.work_ended, self._adopt, partial(disown, self.database))
        return self.slot_runners[slot]

    def _adopt(self, slot: int, child: Child, stop: Stop) -> None:
        while not (self.ended.is_set() or stop.asked):
            try:
                adopt(self.database, self.who.id, slot, child)
                return
            except Unreachable:
                self.ended.wait(1.0)  # the claim is ours and its work has not begun: wait with it
        raise LeaseLost("the work was stopped before it began")

    def work_ended(self, batch: list[tuple[Running, Outcome]]) -> None:
        """Called from wherever work ends."""
        self.ended_work.extend(batch)
        self.at_work.difference_update([running.claim.job_id for running, _ in batch])
        if self.abandoned:
            self._say_stopped()
        self.waiter.nudge()

    def _read_back(self) -> None:
        """After a commit whose answer was lost: what the database says we hold is what we hold."""
        with self.database.read() as tx:
            held = {claim.job_id: claim for claim in claims.own(tx, self.who.id)}
        kept = deque((r, o) for r, o in self.ended_work if r.claim.job_id in held)
        for running, _ in self.ended_work:
            if running.claim.job_id not in held:  # it was recorded after all
                self.running.pop(running.claim.job_id, None)
                self.notes.forget(running.claim.job_id)
                self.free.append(running.claim.slot)
                self.finished += 1
        self.ended_work = kept
        fresh = [claim for job_id, claim in held.items() if job_id not in self.running]
        self.free = [slot for slot in self.free if slot not in {claim.slot for claim in fresh}]
        self.uncertain = False
        if fresh:
            self._hand_over(fresh)

    def _delay(self) -> float:
        delay = 0.0 if self.ended_work or self.missed else POLL_SECONDS
        if not self.beating:
            delay = min(delay, self.wishes.lease / 3)  # until then it renews itself
        if self.due is not None:
            delay = min(delay, max(0.0, self.due - time.monotonic()) + 0.0005)
        if self.notes_at is not None:
            delay = min(delay, max(0.0, self.notes_at - time.monotonic()))
        return delay

    # --- ending ---

    def _judge_stuck(self) -> None:
        """Work that does not stop keeps its claim; its worker takes no new work and ends when the rest is done."""
        late = time.monotonic() - STUCK_AFTER
        hopeless = [r for r in self.running.values() if r.asked_at is not None and r.asked_at < late]
        if hopeless and not self.stuck:
            self.stuck = True
            self.database.transact("stuck", lambda tx: self._say_stuck(tx, hopeless))

    def _say_stuck(self, tx: Tx, hopeless: list[Running]) -> None:
        workers.set_state(tx, self.who.id, "stuck", self.actor)
        for running in hopeless:
            claim = running.claim
            for tenant_id, version in tx.run("mark_reason", id=claim.job_id, fence=claim.fence, reason="not stopping"):
                claims.record_stuck(tx, tenant_id, claim, version, self.actor)

    @property
    def only_stuck_left(self) -> bool:
        return self.stuck and all(r.asked_at is not None for r in self.running.values())

    def drain(self) -> None:
        """Claims nothing more; what runs goes on."""
        self.draining = True
        self.waiter.nudge()

    def interrupt_all(self, why: str, grace: float = STOP_GRACE) -> None:
        """The shutdown grace is over: what still runs is ended and recorded as interrupted."""
        for running in list(self.running.values()):
            if running.override is None:
                running.override = Interrupted(why)
            running.request_stop(grace)

    def close(self) -> None:
        """After the last turn: ends the children and the heartbeat and takes leave."""
        for runner in self.slot_runners.values():
            runner.close()
        for runner in self.slot_runners.values():
            runner.thread.join(STOP_GRACE)
        if self.async_runner is not None:
            self.async_runner.close()
        if self.heartbeat is not None:
            self.heartbeat.close()
        self.waiter.close()
        if not self.running:
            self._take_leave()

    def _take_leave(self) -> None:
        try:
            self.database.transact("retire", lambda tx: workers.retire(tx, self.who.id, "shut down", actor=self.actor))
        except Unreachable as error:
            log.warning("could not take leave: %s; recovery will see that this process is gone", error)

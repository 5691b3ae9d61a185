"""I-11: no job was claimed before a better placed one.

Only queued jobs count that the same worker could have claimed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from headway.verify.history import History
from headway.verify.replay.claim_batch import Batch, Claimed
from headway.verify.replay.queue import NOWHERE, Line, Lines, Queues, Standing, priority_of
from headway.verify.replay.state import UNKNOWN, ReplayState
from headway.verify.report import Finding, about_job
from headway.verify.rows import Bucket, Moment, worker_of
from headway.verify.transitions import RELANED

MOST_AGED = 100
NO_JOBS: Mapping[int, int] = {}


class Doubt(NamedTuple):
    """A finding that a later event may refute.

    This is the next event of the job, or of a job before it.
    """

    at: int
    rules: int
    place: int
    finding: Finding


class LockedJob(NamedTuple):
    """A change of a queued job by another transaction.

    Claims may have skipped the locked row.
    """

    at: int
    place: int
    lanes: tuple[int, ...]


class Order:
    """Judges the order of claims.

    The claims of one transaction are judged together, when all are known.
    """

    def __init__(self, history: History, state: ReplayState) -> None:
        self.history = history
        self.state = state
        self.queues = Queues(history, state)
        self.settle = history.settle
        self.batch: list[Claimed] = []
        self.doubts: dict[int, Doubt] = {}
        # Jobs that were passed over and still wait. Their lanes are reserved for them before any other job.
        self.overtaken: dict[int, tuple[int, ...]] = {}
        self.promised: Counter[int] = Counter()
        self.locked: deque[LockedJob] = deque()

    def before(self, moment: Moment) -> list[Finding]:
        """Judges the batch of claims if this event is not part of it.

        Call it before the event is applied.
        """
        return self._judge() if self.batch and not self._same_batch(moment) else []

    def see(self, moment: Moment) -> list[Finding]:
        """Takes an event into account. Call it after the event was applied."""
        if moment.thing == "target":
            self.queues.choose(moment.thing_id, moment.at)
        if moment.thing != "job" or moment.status is None or moment.bucket_id is None:
            return []
        findings = self._settle_doubt(moment) if moment.thing_id in self.overtaken else []
        if self.settle and moment.kind != "job.claimed":
            self._excuse(moment)
        if moment.kind == "job.claimed":
            findings += self._claim(moment)
        else:
            self.queues.see(moment)
        return findings

    def end(self) -> list[Finding]:
        """Returns the remaining findings.

        A doubt that a later event may still refute is dropped.
        """
        last = self.history.now - self.settle
        return self._judge() + [doubt.finding for doubt in self.doubts.values() if doubt.at <= last]

    def _same_batch(self, moment: Moment) -> bool:
        """Returns True if the event is in the batch, or may lie between its events.

        The claims of one transaction have the same time and actor. On PostgreSQL other transactions write events in
        between. If such an event causes a doubt, the rest of the batch refutes it.
        """
        last = self.batch[-1].moment
        if moment.kind != "job.claimed":
            return self.settle > 0 and moment.thing == "job" and moment.thing_id not in self.state.live
        return (moment.at, moment.actor) == (last.at, last.actor)

    def _claim(self, moment: Moment) -> list[Finding]:
        findings = [*self._paused(moment)] if self.state.pauses or self.state.inactive else []
        if moment.target_id is not None:
            findings += self._not_first(moment, moment.target_id)
        stood = self.queues.see(moment)
        bucket = self.state.bucket(moment)
        if stood is not None and stood.place != NOWHERE and bucket is not None:
            worker = self.history.workers.get(worker_of(moment.actor) or "")
            serves = None if worker is None else worker.tasks
            self.batch.append(Claimed(moment, stood.place, stood.queued_at, bucket, serves))
        return findings

    def _paused(self, moment: Moment) -> Iterator[Finding]:
        """Yields a claim in a paused queue or for an inactive tenant."""
        bucket = self.state.bucket(moment)
        since = self.state.inactive.get(bucket.tenant_id) if bucket else None
        if since is not None and since + self.settle <= moment.at:
            text = f"claimed at {moment.at} (version {moment.version}), but its tenant was inactive since {since}"
            yield about_job("I-11", moment.thing_id, text)
        for tenant_id in (0, bucket.tenant_id) if bucket else ():
            pause = self.state.pauses.get(tenant_id)
            if pause and pause.since + self.settle <= moment.at and (pause.until is None or moment.at < pause.until):
                text = (
                    f"claimed at {moment.at} (version {moment.version}), but its queue was paused since {pause.since}"
                )
                yield about_job("I-11", moment.thing_id, text)

    def _not_first(self, moment: Moment, target_id: int) -> list[Finding]:
        """Returns a finding if the claimed job was not the first of its target.

        This holds for all workers, even those that do not know the task of the first job.
        """
        first = self.queues.first_of(target_id, moment.at)
        if first is None or first.job_id == moment.thing_id or first.job_id in self.queues.named:
            return []
        if self.state.holders.get(target_id) != moment.thing_id:
            return []  # I-05 reports a target that another job held
        return self._doubt(first, moment, f"on target {target_id}")

    # --- the judgement ---

    def _judge(self) -> list[Finding]:
        batch, self.batch = self.batch, []
        if not batch:
            return []
        self.queues.settle_until(batch[0].moment.at)
        findings: list[Finding] = []
        for tenant_id in dict.fromkeys(claim.bucket.tenant_id for claim in batch):
            lines = self.queues.lines.get(tenant_id)
            if lines:
                claims = [claim for claim in batch if claim.bucket.tenant_id == tenant_id]
                interval = self.state.aging
                if interval is None:
                    findings += self._judge_by_place(claims, lines)
                else:
                    findings += self._judge_by_age(claims, lines, interval)
        return findings

    def _judge_by_place(self, claims: list[Claimed], lines: Lines) -> list[Finding]:
        """Judges the claims in queue order, each by the room it had at its turn."""
        findings: list[Finding] = []
        # Most buckets wait for a full lane and are skipped here.
        shut = self.state.full.difference(*(claim.bucket.lanes for claim in claims))
        batch = Batch(self.state, claims)
        for claim in sorted(claims, key=lambda claim: claim.place):
            joined = batch.joined(claim)
            passed = self._passed(claim, lines.values(), shut - joined, batch.later, joined)
            findings += [] if passed is None else self._doubt(passed, claim.moment)
            batch.judged(claim)
            shut.update(lane for lane in claim.bucket.lanes if not batch.later[lane] and lane in self.state.full)
        return findings

    def _passed(
        self,
        claim: Claimed,
        lines: Iterable[Line],
        shut: set[int],
        later: Mapping[int, int],
        joined: frozenset[int] = frozenset(),
    ) -> Standing | None:
        """Returns the best job that could have been claimed instead, or None.

        If the claimed job joined its stage in a full lane, jobs that waited for that lane count too, even if the worker
        does not know their task.
        """
        passed: Standing | None = None
        place = claim.place
        for line in lines:
            before = line.places and line.places[0] < place and shut.isdisjoint(line.bucket.lanes)
            waits = before and not joined.isdisjoint(line.bucket.lanes)
            if before and self._could(line.bucket, claim, later, any_worker=bool(waits)):
                best = self.queues.best(line, claim.moment.at)
                if best is None or best.place >= place or not self._to_name(best, claim):
                    continue
                if not waits or self._kept_off(best, line.bucket, claim, joined):
                    passed, place = best, best.place
        return passed

    def _kept_off(self, one: Standing, bucket: Bucket, claim: Claimed, joined: frozenset[int]) -> bool:
        """Returns True if a job waited for the lanes that the claim joined.

        If its own stage is in these lanes, it waited only for a worker that knows its task.
        """
        known = bucket.task == claim.bucket.task or (claim.serves is not None and bucket.task in claim.serves)
        return known or any(one.stage not in self.state.inside[lane] for lane in joined.intersection(bucket.lanes))

    def _to_name(self, one: Standing, claim: Claimed) -> bool:
        """Returns True if a job can be reported.

        It is reported only once, and not if a pruned job may have held its target.
        """
        return one.job_id not in self.queues.named and (one.target_id is None or self.state.whole(claim.moment))

    def _could(
        self,
        bucket: Bucket,
        claim: Claimed,
        later: Mapping[int, int],
        beside: Mapping[int, int] = NO_JOBS,
        *,
        any_worker: bool = False,
    ) -> bool | None:
        """Returns True if the worker could have claimed from this bucket instead.

        Returns None if that is unknown. With `any_worker`, the worker's tasks do not matter.
        """
        sure: bool | None = True
        if bucket.task != claim.bucket.task and not any_worker:
            if claim.serves is None:
                sure = None
            elif bucket.task not in claim.serves:
                return False
        for lane in bucket.lanes:
            # The claim itself shows that there was room in the lanes that both need.
            room = True if lane in claim.bucket.lanes else self._room(lane, claim, later, beside)
            if room is False:
                return False
            sure = sure and room
        return sure

    def _room(self, lane: int, claim: Claimed, later: Mapping[int, int], beside: Mapping[int, int]) -> bool | None:
        """Returns True if a lane had room for another job; None if that is unknown.

        `later`: jobs of the same batch that were claimed after it. `beside`: jobs that perhaps were. Jobs that were
        passed over keep their room.
        """
        state = self.state
        if state.reserved_lanes[lane]:
            return None if state.turn(state.streaks, lane) or state.may_yield(lane) else False
        if not state.whole(claim.moment):
            return None  # a pruned reservation may have closed it, even a lane without a limit
        limit = state.capacity.get(lane, UNKNOWN)
        if limit is None:
            return True
        if limit == UNKNOWN:
            return None
        free = limit - (len(state.inside[lane]) - later.get(lane, 0)) - self.promised[lane]
        if free <= 0:
            return False
        free -= beside.get(lane, 0)
        return None if free <= 0 or (self.settle and state.leaving(lane, claim.moment, free)) else True

    # --- by age ---

    def _judge_by_age(self, claims: list[Claimed], lines: Lines, interval: int) -> list[Finding]:
        """Judges each claim against the first job of every priority.

        The order of the claims within one transaction is not recorded.
        """
        levels: dict[int, list[Line]] = {}
        for (_, priority), line in lines.items():
            levels.setdefault(priority, []).append(line)
        findings: list[Finding] = []
        for claim in claims:
            better = [*self._better(claim, claims, levels, interval)]
            if better:
                raised, _, best = max(better, key=lambda each: each[:2])
                findings += self._doubt(best, claim.moment, f"with priority {raised} by its age")
        return findings

    def _better(
        self, claim: Claimed, batch: list[Claimed], levels: Mapping[int, list[Line]], interval: int
    ) -> Iterator[tuple[int, int, Standing]]:
        """Yields the jobs that should have been claimed before this one.

        Each comes with its effective and plain priority.
        """
        mark, at = self._mark(claim, interval), claim.moment.at
        for priority, level in levels.items():
            if priority == mark[1]:
                one = self._passed(claim, level, self.state.full.difference(claim.bucket.lanes), NO_JOBS)
            elif self._hidden(mark, batch, priority, interval):
                continue
            else:
                one = self._first(claim, batch, level)
            if one is None or one.job_id in self.queues.named:
                continue
            raised = _effective(one.place, one.queued_at, at - self.settle, interval)
            steady = priority == mark[1] or self.queues.steady(claim.bucket.tenant_id, one, at)
            if steady and (priority == mark[1] or (raised, priority) > mark):
                yield raised, priority, one

    def _hidden(self, mark: tuple[int, int], batch: list[Claimed], priority: int, interval: int) -> bool:
        """Returns True if another job may have been the first of its priority.

        This is a job of the same batch, or a pruned one.
        """
        if not self.state.whole(batch[0].moment):
            return True
        at = batch[0].moment.at - self.settle
        others = [one for one in batch if priority_of(one.place) == priority]
        return any((_effective(one.place, one.queued_at, at, interval), priority) <= mark for one in others)

    def _mark(self, claim: Claimed, interval: int) -> tuple[int, int]:
        """Returns the effective and plain priority that another job has to beat."""
        raised = _effective(claim.place, claim.queued_at - self.settle, claim.moment.at, interval)
        return raised, priority_of(claim.place)

    def _first(self, claim: Claimed, batch: list[Claimed], level: Iterable[Line]) -> Standing | None:
        """Returns the first job of a priority that could have been claimed.

        Returns None if there is none, or if that is unknown.
        """
        first: Standing | None = None
        unsure = False
        taken = Counter(lane for each in batch for lane in each.bucket.lanes)
        shared = {lane for lane in self.state.full if self.state.shared(lane)}
        shut = self.state.full.difference(taken, shared)
        for line in level:
            if not line.places or not shut.isdisjoint(line.bucket.lanes):
                continue
            could = self._could(line.bucket, claim, taken, taken)
            if could is False and not shared.isdisjoint(line.bucket.lanes):
                could = None  # its first job may have joined its stage
            best = None if could is False else self.queues.best(line, claim.moment.at)
            if best is not None and (first is None or best.place < first.place):
                first, unsure = best, could is None
        return None if unsure else first

    # --- doubts ---

    def _doubt(self, one: Standing, claim: Moment, how: str = "") -> list[Finding]:
        lanes = self.state.buckets[one.bucket_id].lanes
        recent = (locked_job for locked_job in self.locked if locked_job.at + self.settle >= claim.at)
        if any(self._hides(locked_job, one.place, lanes) for locked_job in recent):
            return []
        self.queues.named.add(one.job_id)
        self.overtaken[one.job_id] = lanes
        self.promised.update(lanes)
        since = self.queues.since(one)
        stood = f"it stood in the queue {how} since {since}" if how else f"it stood in the queue since {since}"
        text = f"{stood} when job {claim.thing_id} behind it was claimed at {claim.at} (version {claim.version})"
        finding = about_job("I-11", one.job_id, text)
        if not self.settle and not self.state.ahead[one.job_id]:
            return [finding]
        self.doubts[one.job_id] = Doubt(claim.at, self.state.rules, one.place, finding)
        return []

    def _settle_doubt(self, moment: Moment) -> list[Finding]:
        self.promised.subtract(self.overtaken.pop(moment.thing_id))
        doubt = self.doubts.pop(moment.thing_id, None)
        if doubt is None:
            return []
        if self._refuted(doubt, moment):
            self.queues.named.discard(moment.thing_id)
            return []
        return [doubt.finding]

    def _excuse(self, moment: Moment) -> None:
        """Drops doubts that a locked job explains.

        A claim skips a job that another transaction has locked, but its plan counts that job in its lanes.
        """
        stood, bucket = self.queues.standing.get(moment.thing_id), self.state.bucket(moment)
        if stood is None or bucket is None or not bucket.lanes:
            return
        locked_job = LockedJob(moment.at, stood.place, bucket.lanes)
        while self.locked and self.locked[0].at + self.settle < moment.at:
            self.locked.popleft()
        self.locked.append(locked_job)
        for job_id, doubt in list(self.doubts.items()):
            near = moment.at <= doubt.at + self.settle
            if near and job_id != moment.thing_id and self._hides(locked_job, doubt.place, self.overtaken[job_id]):
                del self.doubts[job_id]
                self.promised.subtract(self.overtaken.pop(job_id))
                self.queues.named.discard(job_id)

    def _hides(self, locked_job: LockedJob, place: int, lanes: Iterable[int]) -> bool:
        """Returns True if a locked job came before this place in one of these lanes."""
        return (locked_job.place < place or self.state.aging is not None) and not set(locked_job.lanes).isdisjoint(
            lanes
        )

    def _refuted(self, doubt: Doubt, moment: Moment) -> bool:
        """Returns True if the next event of the job explains why it was passed over.

        A job of an older policy is not claimed before it gets its lanes. On PostgreSQL a claim skips a job that another
        transaction is changing, because its row is locked.
        """
        if moment.kind == RELANED and doubt.rules == self.state.rules:
            return True
        return self.settle > 0 and moment.at <= doubt.at + self.settle


def _effective(place: int, queued_at: int, at: int, interval: int) -> int:
    """Returns a priority raised by the whole intervals that a job has waited."""
    return min(MOST_AGED, priority_of(place) + max(0, at - queued_at) // interval)

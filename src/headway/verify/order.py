"""I-11: no job was claimed while a better one stood in the queue that the same worker could have claimed."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from headway.verify.batch import Batch, Claimed
from headway.verify.board import UNKNOWN, Board
from headway.verify.history import History
from headway.verify.moves import RELANED
from headway.verify.queues import NOWHERE, Line, Lines, Queues, Standing, priority_of
from headway.verify.records import Bucket, Moment, worker_of
from headway.verify.report import Finding, about_job

MOST_AGED = 100
NOBODY: Mapping[int, int] = {}


class Doubt(NamedTuple):
    """A finding that a later event may refute: the next one of the job, or of one that stood before it."""

    at: int
    rules: int
    place: int
    finding: Finding


class InHand(NamedTuple):
    """A change of a job in the queue that somebody made, seen before the claims that may have gone past it."""

    at: int
    place: int
    lanes: tuple[int, ...]


class Order:
    """What is taken in one transaction is judged together, when all of it is known."""

    def __init__(self, history: History, board: Board) -> None:
        self.history = history
        self.board = board
        self.queues = Queues(history, board)
        self.settle = history.settle
        self.batch: list[Claimed] = []
        self.doubts: dict[int, Doubt] = {}
        # Jobs that were passed over and still wait: what they need is theirs before it is anybody else's.
        self.overtaken: dict[int, tuple[int, ...]] = {}
        self.promised: Counter[int] = Counter()
        self.in_hand: deque[InHand] = deque()

    def before(self, moment: Moment) -> list[Finding]:
        """To be asked before the event has happened: judges the claims that are complete by now."""
        return self._judge() if self.batch and not self._same_batch(moment) else []

    def see(self, moment: Moment) -> list[Finding]:
        """To be told when it has happened."""
        if moment.thing == "target":
            self.queues.choose(moment.thing_id, moment.at)
        if moment.thing != "job" or moment.status is None or moment.bucket_id is None:
            return []
        found = self._settle_doubt(moment) if moment.thing_id in self.overtaken else []
        if self.settle and moment.kind != "job.claimed":
            self._excuse(moment)
        if moment.kind == "job.claimed":
            found += self._claim(moment)
        else:
            self.queues.see(moment)
        return found

    def end(self) -> list[Finding]:
        """What is too young to be refuted is left for the next time."""
        last = self.history.now - self.settle
        return self._judge() + [doubt.finding for doubt in self.doubts.values() if doubt.at <= last]

    def _same_batch(self, moment: Moment) -> bool:
        """Jobs taken in one transaction have one time and one taker. On PostgreSQL others write in between; what they
        change on the board is not waited for: a doubt that comes of it is refuted by the rest of the batch."""
        last = self.batch[-1].moment
        if moment.kind != "job.claimed":
            return self.settle > 0 and moment.thing == "job" and moment.thing_id not in self.board.live
        return (moment.at, moment.actor) == (last.at, last.actor)

    def _claim(self, moment: Moment) -> list[Finding]:
        found = [*self._paused(moment)] if self.board.pauses or self.board.inactive else []
        if moment.target_id is not None:
            found += self._not_first(moment, moment.target_id)
        stood = self.queues.see(moment)
        bucket = self.board.bucket(moment)
        if stood is not None and stood.place != NOWHERE and bucket is not None:
            worker = self.history.workers.get(worker_of(moment.actor) or "")
            serves = None if worker is None else worker.tasks
            self.batch.append(Claimed(moment, stood.place, stood.queued_at, bucket, serves))
        return found

    def _paused(self, moment: Moment) -> Iterator[Finding]:
        """Nothing starts while its queue, or everybody's, is paused, or its tenant inactive."""
        bucket = self.board.bucket(moment)
        since = self.board.inactive.get(bucket.tenant_id) if bucket else None
        if since is not None and since + self.settle <= moment.at:
            text = f"claimed at {moment.at} (version {moment.version}), but its tenant was inactive since {since}"
            yield about_job("I-11", moment.thing_id, text)
        for tenant_id in (0, bucket.tenant_id) if bucket else ():
            pause = self.board.pauses.get(tenant_id)
            if pause and pause.since + self.settle <= moment.at and (pause.until is None or moment.at < pause.until):
                text = (
                    f"claimed at {moment.at} (version {moment.version}), but its queue was paused since {pause.since}"
                )
                yield about_job("I-11", moment.thing_id, text)

    def _not_first(self, moment: Moment, target_id: int) -> list[Finding]:
        """On a target only the first may be claimed, whoever knows its task."""
        first = self.queues.first_of(target_id, moment.at)
        if first is None or first.job_id == moment.thing_id or first.job_id in self.queues.named:
            return []
        if self.board.holders.get(target_id) != moment.thing_id:
            return []  # that somebody else held it is I-05's to say
        return self._doubt(first, moment, f"on target {target_id}")

    # --- the judgement ---

    def _judge(self) -> list[Finding]:
        batch, self.batch = self.batch, []
        if not batch:
            return []
        self.queues.settle_until(batch[0].moment.at)
        found: list[Finding] = []
        for tenant_id in dict.fromkeys(claim.bucket.tenant_id for claim in batch):
            lines = self.queues.lines.get(tenant_id)
            if lines:
                claims = [claim for claim in batch if claim.bucket.tenant_id == tenant_id]
                interval = self.board.aging
                if interval is None:
                    found += self._judge_by_place(claims, lines)
                else:
                    found += self._judge_by_age(claims, lines, interval)
        return found

    def _judge_by_place(self, claims: list[Claimed], lines: Lines) -> list[Finding]:
        """In queue order, so that each is judged by the room there was when its turn came."""
        found: list[Finding] = []
        # Most kinds of work wait for a full lane: these need no closer look.
        shut = self.board.full.difference(*(claim.bucket.lanes for claim in claims))
        batch = Batch(self.board, claims)
        for claim in sorted(claims, key=lambda claim: claim.place):
            joined = batch.joined(claim)
            one = self._passed(claim, lines.values(), shut - joined, batch.later, joined)
            found += [] if one is None else self._doubt(one, claim.moment)
            batch.judged(claim)
            shut.update(lane for lane in claim.bucket.lanes if not batch.later[lane] and lane in self.board.full)
        return found

    def _passed(
        self,
        claim: Claimed,
        lines: Iterable[Line],
        shut: set[int],
        later: Mapping[int, int],
        joined: frozenset[int] = frozenset(),
    ) -> Standing | None:
        """The best job that stood before the claimed one and could have been taken in its stead; where that one joined
        its stage in a full lane, also who waited for the lane, whoever knows its task."""
        found: Standing | None = None
        place = claim.place
        for line in lines:
            before = line.places and line.places[0] < place and shut.isdisjoint(line.bucket.lanes)
            waits = before and not joined.isdisjoint(line.bucket.lanes)
            if before and self._could(line.bucket, claim, later, anybody=bool(waits)):
                best = self.queues.best(line, claim.moment.at)
                if best is None or best.place >= place or not self._to_name(best, claim):
                    continue
                if not waits or self._kept_off(best, line.bucket, claim, joined):
                    found, place = best, best.place
        return found

    def _kept_off(self, one: Standing, bucket: Bucket, claim: Claimed, joined: frozenset[int]) -> bool:
        """Whether a job waited for the lanes that another joined: its own stage may be in them, but for the worker."""
        known = bucket.task == claim.bucket.task or (claim.serves is not None and bucket.task in claim.serves)
        return known or any(one.stage not in self.board.inside[lane] for lane in joined.intersection(bucket.lanes))

    def _to_name(self, one: Standing, claim: Claimed) -> bool:
        """Each is named once; and who was pruned may have held its target."""
        return one.job_id not in self.queues.named and (one.target_id is None or self.board.whole(claim.moment))

    def _could(
        self,
        bucket: Bucket,
        claim: Claimed,
        later: Mapping[int, int],
        beside: Mapping[int, int] = NOBODY,
        *,
        anybody: bool = False,
    ) -> bool | None:
        """Whether who made a claim could have claimed a job of this kind instead, or `anybody`. None: that cannot be
        told."""
        sure: bool | None = True
        if bucket.task != claim.bucket.task and not anybody:
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
        """Whether a lane had room for one more. Of the same batch, `later` ones came after, `beside` ones perhaps. Jobs
        that were passed over come first."""
        board = self.board
        if board.reserved_lanes[lane]:
            return None if board.turn(board.streaks, lane) or board.may_yield(lane) else False
        limit = board.capacity.get(lane, UNKNOWN)
        if limit is None:
            return True
        if limit == UNKNOWN or not board.whole(claim.moment):
            return None
        free = limit - (len(board.inside[lane]) - later.get(lane, 0)) - self.promised[lane]
        if free <= 0:
            return False
        free -= beside.get(lane, 0)
        return None if free <= 0 or (self.settle and board.leaving(lane, claim.moment, free)) else True

    # --- by age ---

    def _judge_by_age(self, claims: list[Claimed], lines: Lines, interval: int) -> list[Finding]:
        """Each against the first of every priority. In which order those of one batch were taken is not recorded."""
        levels: dict[int, list[Line]] = {}
        for (_, priority), line in lines.items():
            levels.setdefault(priority, []).append(line)
        found: list[Finding] = []
        for claim in claims:
            better = [*self._better(claim, claims, levels, interval)]
            if better:
                raised, _, one = max(better, key=lambda each: each[:2])
                found += self._doubt(one, claim.moment, f"with priority {raised} by its age")
        return found

    def _better(
        self, claim: Claimed, batch: list[Claimed], levels: Mapping[int, list[Line]], interval: int
    ) -> Iterator[tuple[int, int, Standing]]:
        """The jobs that should have been taken before this one: effective and plain priority of each."""
        mark, at = self._mark(claim, interval), claim.moment.at
        for priority, level in levels.items():
            if priority == mark[1]:
                one = self._passed(claim, level, self.board.full.difference(claim.bucket.lanes), NOBODY)
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
        """Whether one of the same batch, or one that was pruned, may have been the first of a priority at that time."""
        if not self.board.whole(batch[0].moment):
            return True
        at = batch[0].moment.at - self.settle
        others = [one for one in batch if priority_of(one.place) == priority]
        return any((_effective(one.place, one.queued_at, at, interval), priority) <= mark for one in others)

    def _mark(self, claim: Claimed, interval: int) -> tuple[int, int]:
        """What another priority has to beat: effective, then plain priority."""
        raised = _effective(claim.place, claim.queued_at - self.settle, claim.moment.at, interval)
        return raised, priority_of(claim.place)

    def _first(self, claim: Claimed, batch: list[Claimed], level: Iterable[Line]) -> Standing | None:
        """The first job of a priority that could have been claimed; None also where that cannot be told."""
        first: Standing | None = None
        unsure = False
        taken = Counter(lane for each in batch for lane in each.bucket.lanes)
        shared = {lane for lane in self.board.full if self.board.shared(lane)}
        shut = self.board.full.difference(taken, shared)
        for line in level:
            if not line.places or not shut.isdisjoint(line.bucket.lanes):
                continue
            could = self._could(line.bucket, claim, taken, taken)
            if could is False and not shared.isdisjoint(line.bucket.lanes):
                could = None  # the first of it may have joined its stage
            best = None if could is False else self.queues.best(line, claim.moment.at)
            if best is not None and (first is None or best.place < first.place):
                first, unsure = best, could is None
        return None if unsure else first

    # --- doubts ---

    def _doubt(self, one: Standing, claim: Moment, how: str = "") -> list[Finding]:
        lanes = self.board.buckets[one.bucket_id].lanes
        recent = (hand for hand in self.in_hand if hand.at + self.settle >= claim.at)
        if any(self._hides(hand, one.place, lanes) for hand in recent):
            return []
        self.queues.named.add(one.job_id)
        self.overtaken[one.job_id] = lanes
        self.promised.update(lanes)
        since = self.queues.since(one)
        stood = f"it stood in the queue {how} since {since}" if how else f"it stood in the queue since {since}"
        text = f"{stood} when job {claim.thing_id} behind it was claimed at {claim.at} (version {claim.version})"
        finding = about_job("I-11", one.job_id, text)
        if not self.settle and not self.board.ahead[one.job_id]:
            return [finding]
        self.doubts[one.job_id] = Doubt(claim.at, self.board.rules, one.place, finding)
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
        """Claims go past a job that somebody has in hand, but it has its lanes in their plan."""
        stood, bucket = self.queues.standing.get(moment.thing_id), self.board.bucket(moment)
        if stood is None or bucket is None or not bucket.lanes:
            return
        hand = InHand(moment.at, stood.place, bucket.lanes)
        while self.in_hand and self.in_hand[0].at + self.settle < moment.at:
            self.in_hand.popleft()
        self.in_hand.append(hand)
        for job_id, doubt in list(self.doubts.items()):
            near = moment.at <= doubt.at + self.settle
            if near and job_id != moment.thing_id and self._hides(hand, doubt.place, self.overtaken[job_id]):
                del self.doubts[job_id]
                self.promised.subtract(self.overtaken.pop(job_id))
                self.queues.named.discard(job_id)

    def _hides(self, hand: InHand, place: int, lanes: Iterable[int]) -> bool:
        """Whether a job in hand would have had one of these lanes before a job at this place."""
        return (hand.place < place or self.board.aging is not None) and not set(hand.lanes).isdisjoint(lanes)

    def _refuted(self, doubt: Doubt, moment: Moment) -> bool:
        """A job of an older policy is not claimed before it gets its lanes. Nor is one that somebody is just changing:
        PostgreSQL skips locked rows."""
        if moment.kind == RELANED and doubt.rules == self.board.rules:
            return True
        return self.settle > 0 and moment.at <= doubt.at + self.settle


def _effective(place: int, queued_at: int, at: int, interval: int) -> int:
    """A priority raised by the whole intervals that a job has waited."""
    return min(MOST_AGED, priority_of(place) + max(0, at - queued_at) // interval)

"""I-11: replays the queue of every bucket; no job was claimed while a better placed one stood there.

Jobs of one bucket need the same task and the same lanes, so whoever claimed one could have claimed the other.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from headway.verify.history import History
from headway.verify.moves import QUEUED
from headway.verify.records import Moment, facts
from headway.verify.report import Finding, about_job

_BITS = 64
_LOW = (1 << _BITS) - 1
_MIDDLE = 1 << (_BITS - 1)


class Standing(NamedTuple):
    """A job in the queue: its place, since when it has had it, and when it expires."""

    place: int
    since: int
    expires_at: int | None


def place_of(priority: int, position: int, moment: Moment) -> int:
    """Smaller is better: priority, position, creation and number in one integer. A million may stand at once."""
    first = (100 - priority) << _BITS | (position + _MIDDLE)
    return (first << _BITS | moment.created_at) << _BITS | moment.thing_id


class Order:
    """The queues between two events.

    SQLite writes events in the order of commits. PostgreSQL does not say when a transaction became visible, so there
    only what stood still for `settle` around a claim is judged.
    """

    def __init__(self, history: History) -> None:
        self.settle = history.settle
        self.placed_by: dict[int, int] = dict(history.tx.run("verify_places"))
        self.queues: dict[int, list[int]] = {}
        self.standing: dict[int, Standing] = {}
        self.batch: list[tuple[int, int, Moment]] = []
        self.doubts: dict[int, tuple[int, Finding]] = {}

    def see(self, moment: Moment) -> list[Finding]:
        if moment.thing != "job" or moment.status is None or moment.bucket_id is None:
            return []
        found = self._settle_doubt(moment) if self.doubts else []
        if self.batch and not self._same_batch(moment):
            found += self._judge()
        before = self.standing.pop(moment.thing_id, None)
        if moment.kind == "job.claimed":
            if before is not None:
                self.batch.append((moment.bucket_id, before.place, moment))
        elif moment.status == QUEUED and moment.target_id is None:
            self._stand(moment, moment.bucket_id)
        return found

    def end(self) -> list[Finding]:
        return self._judge() + [finding for _, finding in self.doubts.values()]

    def _same_batch(self, moment: Moment) -> bool:
        """Jobs taken in one transaction have one time and one taker."""
        last = self.batch[-1][2]
        if moment.kind != "job.claimed":
            return self.settle > 0
        return (moment.at, moment.actor) == (last.at, last.actor)

    def _stand(self, moment: Moment, bucket_id: int) -> None:
        place = self._place(moment)
        if place is not None:
            self.standing[moment.thing_id] = Standing(place, moment.at, moment.expires_at)
            heappush(self.queues.setdefault(bucket_id, []), place)

    def _place(self, moment: Moment) -> int | None:
        """Its place after this event: that of its row unless it was moved later, else what the event says."""
        if moment.version >= self.placed_by.get(moment.thing_id, 0):
            return place_of(moment.priority, moment.position, moment)
        if moment.kind == "job.moved":
            said = facts(moment.data)
            if "priority" in said and "position" in said:
                return place_of(said["priority"], said["position"], moment)
        return None

    def _judge(self) -> list[Finding]:
        worst: dict[int, tuple[int, Moment]] = {}
        for bucket_id, place, moment in self.batch:
            if bucket_id not in worst or worst[bucket_id][0] < place:
                worst[bucket_id] = (place, moment)
        self.batch = []
        return [
            finding
            for bucket_id, (place, moment) in worst.items()
            for finding in self._passed(bucket_id, place, moment)
        ]

    def _passed(self, bucket_id: int, place: int, claim: Moment) -> list[Finding]:
        """The best job that stood before the claimed one and could have been taken; each is named once."""
        queue = self.queues[bucket_id]
        fresh: list[int] = []
        found: list[Finding] = []
        while queue and queue[0] < place and not found:
            better = heappop(queue)
            job_id = better & _LOW
            standing = self.standing.get(job_id)
            if standing is None or standing.place != better:
                continue
            if standing.expires_at is not None and standing.expires_at <= claim.at:
                del self.standing[job_id]
            elif standing.since + self.settle > claim.at:
                fresh.append(better)
            else:
                del self.standing[job_id]
                found = self._doubt(job_id, standing, claim)
        for again in fresh:
            heappush(queue, again)
        return found

    def _doubt(self, job_id: int, standing: Standing, claim: Moment) -> list[Finding]:
        text = f"it stood in the queue since {standing.since} when job {claim.thing_id} behind it was claimed"
        finding = about_job("I-11", job_id, f"{text} at {claim.at} (version {claim.version})")
        if not self.settle:
            return [finding]
        self.doubts.setdefault(job_id, (claim.at, finding))
        return []

    def _settle_doubt(self, moment: Moment) -> list[Finding]:
        """A job that somebody was just changing could not be claimed: PostgreSQL skips locked rows."""
        at, finding = self.doubts.pop(moment.thing_id, (0, None))
        return [finding] if finding is not None and moment.at > at + self.settle else []

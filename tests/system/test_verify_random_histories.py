"""Random lives of a small system, made by the store's own functions: `headway verify` finds nothing in any of them, and
finds the mistake when the functions that decide make one."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from headway.clock import SECOND
from headway.errors import HeadwayError
from headway.model.jobs import actions
from headway.model.jobs.job import Claim, Options
from headway.model.jobs.outcome import Completed, Failed, FailureKind, Outcome, StoppedByRequest
from headway.model.jobs.retry import RetryPolicy
from headway.model.jobs.states import State
from headway.model.queue import capacity as rules
from headway.model.queue.capacity import Bucket, Capacity, Reserved
from headway.model.queue.select import Pick, ReadPlaces, Turns, select_jobs
from headway.model.queue.stage_sharing import StageSharing
from headway.store.jobs import changes as jobs
from headway.store.queue import select
from headway.verify import Report
from tests.support.world import ANN, TASKS, WORKER, World, broken

OTHER_WORKER = 0xB0B
ONCE = Options(retry=RetryPolicy(max_attempts=1, base_delay=20.0)).text()
DESKS = ("desk", "chair", "lamp")
TASKS_OF = {WORKER: TASKS, OTHER_WORKER: ("u", "v")}


class Weather(World):
    """Does things at random, as far as they are allowed."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(url)
        self.rng = random.Random(seed)
        self.held: list[tuple[int, Claim]] = []
        self.calls: list[int] = []
        self.ids: list[int] = []
        self.pools = [self.resource("gpu", 1), self.resource("net", 2)]
        for name in DESKS:
            self.target(name)
        self.register(OTHER_WORKER, slots=3, tasks=TASKS_OF[OTHER_WORKER])

    def run(self, work: Callable[..., Any], *, after: float = 10.0) -> Any:
        """Some steps follow each other at once."""
        rng = getattr(self, "rng", None)
        return super().run(work, after=after if rng is None else rng.choice((0.0, 0.5, 3.0, 15.0)))

    def live(self, steps: int) -> None:
        usual = [
            self.new,
            self.new_stage,
            self.work,
            self.work,
            self.work,
            self.end,
            self.end,
            self.end,
            self.change_one,
        ]
        for _ in range(steps):
            rare = self.rng.random()
            act = self.change_all if rare < 0.06 else self.call if rare < 0.13 else self.rng.choice(usual)
            with suppress(HeadwayError):  # not in this state
                act()
            if rare > 0.7:
                self.hang_up()
        for worker_id in TASKS_OF:
            self.beat(worker_id)

    def new(self) -> None:
        rng = self.rng
        wishes: dict[str, Any] = {"task": rng.choice("tuv"), "priority": rng.choice((0, 0, 1, 3)), "options": ONCE}
        if rng.random() < 0.5:
            wishes["target"] = rng.choice(DESKS)
        wishes["resources"] = rng.choice(((), (), ("gpu",), ("net",), ("gpu", "net")))
        if rng.random() < 0.2:
            wishes["delay"] = 20 * SECOND
        if rng.random() < 0.1:
            wishes["expires_at"] = self.clock.now() + 60 * SECOND
        self.ids += self.enqueue(rng.choice((1, 1, 2, 5)), **wishes)

    def new_stage(self) -> None:
        rng = self.rng
        wishes: dict[str, Any] = {"options": ONCE, "priority": rng.choice((0, 0, 1, 3)), "then": rng.choice((0, 0, 2))}
        if rng.random() < 0.2:
            wishes["target"] = rng.choice(DESKS)
        wishes["resources"] = rng.choice(((), (), (), ("gpu",), ("net",)))
        tasks = rng.choice(("t", "u", "tu", "tuv", "vu"))
        self.ids += self.stage(rng.choice((2, 3, 5)), tasks=tasks, **wishes)

    def work(self) -> None:
        worker_id = self.rng.choice((WORKER, OTHER_WORKER))
        slots = 4 if worker_id == WORKER else 3
        free = slots - sum(owner == worker_id for owner, _ in self.held)
        if free:
            found = self.claim(self.rng.randint(1, free), worker_id=worker_id, tasks=TASKS_OF[worker_id])
            self.held += [(worker_id, claim) for claim in found]

    def end(self) -> None:
        if not self.held:
            return
        _, claim = self.held.pop(self.rng.randrange(len(self.held)))
        outcomes: list[Outcome] = [Completed(), Completed(), Failed(FailureKind.EXCEPTION, "boom")]
        if self.rng.random() < 0.2:
            self.interrupt(claim.job_id)
            outcomes = [StoppedByRequest()]
        retry = self.finish(claim.job_id, self.rng.choice(outcomes))
        self.ids += [retry] if retry else []

    def call(self) -> None:
        self.beat(self.rng.choice((WORKER, OTHER_WORKER)))
        on = self.rng.sample(self.pools, self.rng.choice((0, 1, 1, 2)))
        task = self.rng.choice((None, *TASKS))
        desk = self.rng.choice((None, None, *DESKS))
        for _ in range(self.rng.choice((1, 1, 4))):
            self.calls.append(self.reserve(*on, target=desk, task=task, ttl=self.rng.choice((40.0, 4000.0))))
        if self.rng.random() < 0.5:
            self.settle()

    def hang_up(self) -> None:
        while self.calls and self.rng.random() < 0.9:
            self.give_back(self.calls.pop(0))
            self.settle()

    def change_one(self) -> None:
        rng = self.rng
        for job_id in rng.sample(self.ids, min(2, len(self.ids))):
            with self.db.read() as tx:
                job = jobs.find(tx, job_id, 1)
            if job.status is State.QUEUED:
                rng.choice((self._move, self._edit, self.cancel, self._hold))(job_id)
            elif job.status in (State.PAUSED, State.ERROR):
                rng.choice((self.resume, self.resume, self.release, self.cancel))(job_id)
            elif job.status is State.WAITING:
                self.resume(job_id)

    def _move(self, job_id: int) -> None:
        self.move(job_id, priority=self.rng.choice((0, 1, 3)), position=self.rng.randrange(50) << 18)

    def _edit(self, job_id: int) -> None:
        self.change(job_id, actions.edit, priority=self.rng.choice((0, 1, 3)), now=self.clock.now())

    def _hold(self, job_id: int) -> None:
        self.change(job_id, lambda job: actions.interrupt(job, actor=ANN))

    def change_all(self) -> None:
        rng = self.rng
        desk, tenant = rng.choice(DESKS), rng.choice((0, 1))
        acts: list[Callable[[], Any]] = [
            lambda: self.limit(rng.choice((1, 2, None)), rng.choice((1, *self.pools))),
            lambda: self.rules(policy=rng.choice(("global", "per_task", "per_resource"))),
            lambda: self.rules(aging=rng.choice((None, 5.0, 30.0))),
            lambda: self.rules(targets=rng.choice(("own", "global"))),
            lambda: self.pause_target(desk),
            lambda: self.resume_target(desk),
            lambda: self.resume_target(desk),
            lambda: self.pause_queue(tenant, until=self.clock.now() + 20 * SECOND),
            lambda: self.resume_queue(tenant),
        ]
        rng.choice(acts)()


@pytest.fixture
def weather(database_url: str) -> Iterator[Callable[[int], Weather]]:
    made: list[Weather] = []

    def make(seed: int) -> Weather:
        made.append(Weather(database_url, seed))
        return made[-1]

    yield make
    for one in made:
        one.db.close()


def judged(w: Weather) -> Report:
    w.live(400)
    return w.check(settle=0.0)  # steps follow each other here, so also on PostgreSQL nothing has to settle


@pytest.mark.parametrize("seed", range(3))
def test_a_true_history_has_no_findings_whatever_happens(weather: Callable[[int], Weather], seed: int) -> None:
    w = weather(seed)
    report = judged(w)
    assert report.findings == []
    assert report.counted["claims"] > 40
    assert report.counted["reservations"] > 40
    assert w.check().findings == []


# --- mistakes of those who decide -----------------------------------------------------------------------------------


def _room_for_everybody(self: Capacity, bucket: Bucket) -> bool:
    return all(lane not in self.closed for lane in bucket.lanes)


def _nothing_reserved(self: Capacity, bucket: Bucket) -> bool:
    return all(self.free.get(lane, 1) > 0 for lane in bucket.lanes)


def _one_bucket_at_a_time(
    count: int,
    buckets: Sequence[Bucket],
    capacity: Capacity,
    places: ReadPlaces,
    others: Sequence[Bucket],
    turns: Turns | None,
) -> list[Pick]:
    some = [bucket for bucket in buckets if capacity.has_room(bucket)]
    return select_jobs(count, some[-1:], capacity, places, others, turns)


def _members_go_first(self: StageSharing, lanes: object) -> bool:
    """Who waits for a lane keeps no member off it."""
    return False


def _everybody_is_a_member(self: StageSharing, lanes: object, stage: object) -> bool:
    return True


def _whoever_came_last(reserved: Sequence[Reserved], *rest: Any) -> list[int]:
    return real_grants(reserved[::-1], *rest)


def _targets_are_free(reserved: Sequence[Reserved], rooms: Capacity, _: object, first: Collection[int]) -> list[int]:
    return real_grants(reserved, rooms, (), first)


real_grants = rules.grants
MISTAKES: list[tuple[str, object, str, object]] = [
    ("I-05", Capacity, "has_room", _room_for_everybody),
    ("I-16", Capacity, "has_room", _nothing_reserved),
    ("I-11", select, "select_jobs", _one_bucket_at_a_time),
    ("I-11", StageSharing, "_close", _members_go_first),
    ("I-05", StageSharing, "may_join", _everybody_is_a_member),
    ("I-16", rules, "grants", _whoever_came_last),
    ("I-05", rules, "grants", _targets_are_free),
]


@pytest.mark.parametrize(
    ("invariant", "where", "name", "mistake"), MISTAKES, ids=lambda one: getattr(one, "__name__", "")
)
def test_a_mistake_is_found(
    weather: Callable[[int], Weather],
    monkeypatch: pytest.MonkeyPatch,
    invariant: str,
    where: object,
    name: str,
    mistake: object,
) -> None:
    monkeypatch.setattr(where, name, mistake)
    assert broken(judged(weather(0))) == {invariant}

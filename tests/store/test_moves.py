"""Moving jobs in the queue, against a plain list: the order, as few changed rows as can be, and their events."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.engine.client.client import Client
from headway.errors import BadInput, NotFound, WrongState
from headway.model.jobs.job import Claim
from headway.model.jobs.outcome import StoppedByRequest
from tests.support.life import ADA, FINAL, Life
from tests.support.properties import examples as times

_tenants = itertools.count()


@dataclass
class Queue:
    """One tenant's queue, and what it should look like: the ids of each priority in order."""

    life: Life
    lists: dict[int, list[int]] = field(default_factory=lambda: {0: [], 7: []})

    def __post_init__(self) -> None:
        name = f"mover {next(_tenants)}"
        with self.life.database.transaction("tenant") as tx:
            self.life.database.execute_script(tx, f"insert into hw_tenant (name, created_at) values ('{name}', 0);")
        self.client = Client(self.life.database, self.life.client.registry, actor=ADA, tenant=name)
        self.tenant_id = self.client.tenant_id
        self.away: dict[int, Claim] = {}

    @property
    def order(self) -> list[int]:
        return [job_id for priority in sorted(self.lists, reverse=True) for job_id in self.lists[priority]]

    def priority_of(self, job_id: int) -> int:
        return next(priority for priority, ids in self.lists.items() if job_id in ids)

    def stored(self) -> list[tuple[int, int]]:
        text = f"select id, priority from hw_job where tenant_id = {self.tenant_id} and status = 2"
        return [(row[0], row[1]) for row in self.life.sql(f"{text} order by priority desc, position, created_at, id")]

    def versions(self) -> dict[int, int]:
        return dict(self.life.sql(f"select id, version from hw_job where tenant_id = {self.tenant_id}"))

    def check(self) -> None:
        assert self.stored() == [(job_id, self.priority_of(job_id)) for job_id in self.order]

    # --- what is done, and what should come of it ---

    def add(self, priority: int) -> int:
        ((job_id, _),) = self.client.enqueue_many([self.life.new(priority=priority)])
        self.lists[priority].append(job_id)
        return job_id

    def squeeze(self, step: int) -> None:
        """The places as many moves leave them: next to each other, or (0) all on one."""
        with self.life.database.transaction("squeeze") as tx:
            for n, job_id in enumerate(self.order):
                self.life.database.execute_script(
                    tx, f"update hw_job set position = {(1 << 22) + n * step} where id = {job_id};"
                )
        self.adopt()

    def adopt(self) -> None:
        self.lists = {0: [], 7: []}
        for job_id, priority in self.stored():
            self.lists[priority].append(job_id)

    def place(self, job_id: int, priority: int, index: int) -> None:
        self.lists[self.priority_of(job_id)].remove(job_id)
        self.lists[priority].insert(index, job_id)

    def move(self, job_id: int, how: str, other: int, rank: int) -> None:
        own = self.priority_of(job_id)
        rest = [one for one in self.order if one != job_id]
        match how:
            case "top" | "bottom" | "front":
                self.client.move(job_id, to=how)
                highest = max([own, *(self.priority_of(one) for one in rest)]) if how == "front" else own
                self.place(job_id, highest, 99 if how == "bottom" else 0)
            case "before" | "after":
                self.client.move(job_id, before=other) if how == "before" else self.client.move(job_id, after=other)
                self.beside(job_id, other, before=how == "before")
            case "rank":
                self.client.move(job_id, rank=rank)
                if rank <= len(rest):
                    self.beside(job_id, rest[rank - 1], before=True)
                elif rest:
                    self.beside(job_id, rest[-1], before=False)

    def beside(self, job_id: int, other: int, *, before: bool) -> None:
        self.lists[self.priority_of(job_id)].remove(job_id)
        target = self.lists[self.priority_of(other)]
        target.insert(target.index(other) + (not before), job_id)

    def start(self, job_id: int) -> None:
        """Runs, and leaves the queue for a while."""
        self.away[job_id] = self.life.claim(job_id)
        self.lists[self.priority_of(job_id)].remove(job_id)

    def come_back(self) -> None:
        """Everybody who went comes back: interrupted and resumed, or failed and retried twice, on one place then."""
        before = self.order
        for n, (job_id, claim) in enumerate(self.away.items()):
            if n % 2:
                self.life.end(claim, FINAL)
                self.client.retry(job_id)
                self.client.retry(job_id)
            else:
                self.client.interrupt(job_id)
                self.life.end(claim, StoppedByRequest())
                self.client.resume(job_id)
        self.away.clear()
        self.adopt()
        assert [job_id for job_id in self.order if job_id in before] == before


@pytest.fixture
def queue(shared_life: Life) -> Iterator[Queue]:
    queue = Queue(shared_life)
    yield queue
    shared_life.check_versions()


ends = st.sampled_from(["top", "bottom", "front", "before", "after", "before", "after", "rank"])
moves = st.tuples(st.just("move"), ends, st.integers(0, 11), st.integers(0, 11), st.integers(1, 14))
others = st.sampled_from([("start", 0), ("start", 3), ("back", 0), ("add", 0), ("add", 7)])
steps = st.lists(st.one_of(moves, moves, moves, others), min_size=1, max_size=14)


def play(life: Life, priorities: list[int], squeeze: int | None, todo: list[tuple[Any, ...]]) -> None:
    queue = Queue(life)
    for priority in priorities:
        queue.add(priority)
    if squeeze is not None:
        queue.squeeze(squeeze)
    for verb, *rest in todo:
        order = queue.order
        if verb == "move" and len(order) > 1:
            how, one, other, rank = rest
            job_id = order[one % len(order)]
            beside = [each for each in order if each != job_id]
            queue.move(job_id, how, beside[other % len(beside)], rank)
        elif verb == "start" and order:
            queue.start(order[rest[0] % len(order)])
        elif verb == "back":
            queue.come_back()
        elif verb == "add" and len(order) < 12:
            queue.add(rest[0])
        queue.check()
    life.check_versions()


def test_any_moves_give_the_order_of_a_plain_list(shared_life: Life) -> None:
    examples = 250 if shared_life.database.dialect == "sqlite" else 60

    @settings(max_examples=times(examples), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.sampled_from([0, 7]), min_size=2, max_size=8), st.sampled_from([None, 1, 0, 2]), steps)
    def any_moves(priorities: list[int], squeeze: int | None, todo: list[tuple[Any, ...]]) -> None:
        play(shared_life, priorities, squeeze, todo)

    any_moves()


# --- as few rows as can be ---


@pytest.mark.parametrize("how", ["top", "bottom", "front", "before", "after", "rank"])
def test_where_there_is_a_gap_exactly_one_row_changes(queue: Queue, how: str) -> None:
    ids = [queue.add(0) for _ in range(6)]
    before = queue.versions()
    queue.move(ids[4], how, ids[1], 2)
    queue.check()
    changed = {job_id for job_id, version in queue.versions().items() if version != before[job_id]}
    assert changed == {ids[4]}


def test_many_moves_into_the_same_gap_keep_the_order_and_rarely_touch_others(queue: Queue) -> None:
    """Each halves what is left of 2^20; when nothing is left the neighbours are spread, and there is room again."""
    ids = [queue.add(0) for _ in range(5)]
    others = 0
    for n in range(70):
        before = queue.versions()
        queue.move(ids[3 + n % 2], "before", ids[1], 0)
        queue.check()
        changed = {job_id for job_id, version in queue.versions().items() if version != before[job_id]}
        others += len(changed - {ids[3 + n % 2]})
    assert 0 < others <= 20


def test_a_respaced_neighbour_has_an_event_that_says_where_it_is_now(queue: Queue) -> None:
    ids = [queue.add(0) for _ in range(4)]
    queue.squeeze(1)
    running = ids[0]
    queue.start(running)
    before = queue.versions()
    queue.move(ids[3], "before", ids[2], 0)
    queue.check()
    changed = {job_id for job_id, version in queue.versions().items() if version != before[job_id]}
    assert changed == set(ids)  # all of them stood shoulder to shoulder, the running one too
    for job_id in changed:
        kind, status, data = queue.life.sql(
            f"select kind, status, data from hw_event where thing_id = {job_id} order by version desc limit 1"
        )[0]
        job = queue.client.get(job_id)
        assert (kind, status) == ("job.moved", int(job.status))
        assert f'"position": {job.position}' in data
        assert before[job_id] + 1 == job.version
    assert queue.client.get(running).status.name == "RUNNING"


def test_a_neighbourhood_is_no_larger_than_it_must_be(queue: Queue) -> None:
    """Forty jobs, two of them on neighbouring places: the others are left alone."""
    ids = [queue.add(0) for _ in range(40)]
    with queue.life.database.transaction("squeeze") as tx:
        text = (
            f"update hw_job set position = (select position + 1 from hw_job where id = {ids[10]}) where id = {ids[11]};"
        )
        queue.life.database.execute_script(tx, text)
    before = queue.versions()
    queue.move(ids[30], "after", ids[10], 0)
    queue.check()
    changed = {job_id for job_id, version in queue.versions().items() if version != before[job_id]}
    assert changed <= {ids[10], ids[11], ids[30]}


# --- the ends ---


def test_a_new_job_is_last_even_after_many_moves_behind_the_last(queue: Queue) -> None:
    ids = [queue.add(0) for _ in range(3)]
    for n in range(30):
        queue.move(ids[n % 3], "after", queue.order[-1] if queue.order[-1] != ids[n % 3] else queue.order[0], 0)
    fresh = queue.add(0)
    queue.check()
    assert queue.stored()[-1] == (fresh, 0)


def test_a_rank_beyond_the_end_is_the_end(queue: Queue) -> None:
    high, low, last = queue.add(7), queue.add(0), queue.add(0)
    queue.move(high, "rank", low, 3)
    queue.check()
    assert queue.stored() == [(low, 0), (last, 0), (high, 0)]


def test_front_is_ahead_of_a_higher_priority_and_top_is_not(queue: Queue) -> None:
    high, low = queue.add(7), queue.add(0)
    queue.move(low, "top", high, 0)
    assert [job_id for job_id, _ in queue.stored()] == [high, low]
    queue.move(low, "front", high, 0)
    assert queue.stored() == [(low, 7), (high, 7)]


def test_alone_in_the_queue_every_move_leaves_a_job_where_it_is(queue: Queue) -> None:
    only = queue.add(0)
    for how in ("top", "bottom", "front", "rank"):
        queue.move(only, how, only, 1)
        queue.check()


def test_jobs_that_wait_for_their_time_or_a_person_can_be_moved_and_moved_beside(shared_life: Life) -> None:
    life = shared_life
    ids = [life.in_state(state) for state in ("QUEUED", "SCHEDULED", "WAITING")]
    for job_id in ids:
        for other in ids:
            if other != job_id:
                life.client.move(job_id, before=other)
                assert life.job(job_id).position < life.job(other).position
                life.client.move(job_id, after=other)
                assert life.job(job_id).position > life.job(other).position
    assert [life.status(job_id) for job_id in ids] == ["QUEUED", "SCHEDULED", "WAITING"]


# --- refusals ---


def test_wishes_that_make_no_sense_are_refused_and_change_nothing(shared_life: Life) -> None:
    life = shared_life
    one, running = life.in_state("QUEUED"), life.in_state("RUNNING")
    before = life.everything()
    wishes: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({}, BadInput, "exactly one"),
        ({"to": "top", "rank": 1}, BadInput, "exactly one"),
        ({"to": "middle"}, BadInput, "top, bottom or front"),
        ({"rank": 0}, BadInput, "begins at 1"),
        ({"before": one}, BadInput, "itself"),
        ({"after": 10**9}, NotFound, "no job"),
        ({"after": running}, WrongState, f"job {running} is RUNNING"),
        ({"to": "top", "if_version": 99}, WrongState, "has changed"),
    ]
    for wish, error, words in wishes:
        with pytest.raises(error, match=words):
            life.client.move(one, **wish)
    assert life.everything() == before


def test_the_other_job_must_be_of_the_same_tenant(queue: Queue, shared_life: Life) -> None:
    mine, theirs = queue.add(0), shared_life.enqueue()
    with pytest.raises(NotFound):
        queue.client.move(mine, before=theirs)

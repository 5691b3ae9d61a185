"""Several jobs put into another order at once: they share out their places, the others stay, and all or nothing."""

from __future__ import annotations

import random
from functools import partial

import pytest

from headway.engine.client.client import Client
from headway.errors import BadInput, NotFound, WrongState
from headway.model.jobs.outcome import Completed
from headway.verify import check
from tests.support.life import ADA, Life
from tests.support.waiting import at_once


def order(life: Life) -> list[int]:
    text = "select id from hw_job where status <= 2 order by priority desc, position, created_at, id"
    return [job_id for (job_id,) in life.sql(text)]


def places(life: Life) -> list[tuple[int, int]]:
    found = life.sql("select priority, position from hw_job where status <= 2 order by priority desc, position")
    return [(priority, position) for priority, position in found]


def another_tenant(life: Life) -> Client:
    with life.database.transaction("tenant") as tx:
        life.database.execute_script(tx, "insert into hw_tenant (name, created_at) values ('other', 0);")
    return Client(life.database, life.client.registry, actor=ADA, tenant="other")


def test_jobs_take_the_places_they_hold_together_and_the_others_stay(life: Life) -> None:
    a, b, c, d, e = (life.enqueue(priority=priority) for priority in (5, 5, 0, 0, 0))
    before = places(life)
    assert life.client.reorder([e, a, c]) == [a, c, e]
    assert order(life) == [e, b, a, d, c]
    assert places(life) == before
    assert [life.job(one).priority for one in (e, a, c)] == [5, 0, 0]
    assert life.events(b) == life.events(d) == ["job.created"]
    assert life.events(a) == ["job.created", "job.moved"]
    life.check_versions()


def test_who_is_where_it_is_to_be_is_not_touched(life: Life) -> None:
    a, b, c = (life.enqueue() for _ in range(3))
    assert life.client.reorder([a, b, c]) == []
    assert life.client.reorder([a, c, b]) == [b, c]
    assert life.events(a) == ["job.created"]
    assert life.client.reorder([b]) == []


def test_waiting_and_scheduled_jobs_have_places_too(life: Life) -> None:
    ids = [life.in_state(state) for state in ("WAITING", "SCHEDULED", "QUEUED", "resumed")]
    life.client.reorder(ids[::-1])
    assert order(life) == ids[::-1]
    assert [life.status(job_id) for job_id in ids] == ["WAITING", "SCHEDULED", "QUEUED", "QUEUED"]


def test_jobs_on_one_place_are_parted(life: Life) -> None:
    ids = [life.enqueue() for _ in range(6)]
    life.sql_write(f"update hw_job set position = 4096 where id in ({', '.join(map(str, ids))})")
    rng = random.Random(7)
    for _ in range(10):
        wished = rng.sample(ids, rng.randint(2, 6))
        life.client.reorder(wished)
        assert [job_id for job_id in order(life) if job_id in wished] == wished
    life.check_versions()


def test_all_of_them_or_none(life: Life) -> None:
    a, b = life.enqueue(), life.enqueue()
    theirs, _ = another_tenant(life).enqueue(life.new())
    running = life.in_state("RUNNING")
    before = life.everything()
    refused: list[tuple[list[int], type[Exception], str]] = [
        ([b, a, running], WrongState, f"job {running} is RUNNING"),
        ([b, a, theirs], NotFound, f"there is no job {theirs}"),
        ([b, a, 10**9], NotFound, "there is no job"),
        ([b, a, b], BadInput, f"job {b} more than once"),
        ([], BadInput, "1 to 1000"),
    ]
    for ids, error, words in refused:
        with pytest.raises(error, match=words):
            life.client.reorder(ids)
    assert life.everything() == before


def test_what_is_claimed_follows_the_new_order_and_the_history_agrees(life: Life) -> None:
    ids = [life.enqueue(priority=n % 2) for n in range(6)]
    life.client.reorder(ids[::-1])
    claimed = []
    for _ in ids:
        (claim,) = life.claim_next()
        claimed.append(claim.job_id)
        life.end(claim, Completed("null"))
    assert claimed == ids[::-1]
    assert check(life.database).findings == []


def test_on_a_target_the_new_first_one_is_claimed(life: Life) -> None:
    first, second = life.enqueue(target="desk-1"), life.enqueue(target="desk-1")
    assert life.pick(2) == [first]
    life.client.reorder([second, first])
    assert [claim.job_id for claim in life.claim_next(2)] == [second]
    assert check(life.database).findings == []


def test_many_at_once_leave_one_of_the_orders_they_asked_for(life: Life) -> None:
    ids = [life.enqueue() for _ in range(5)]
    before = places(life)
    wished = [random.Random(n).sample(ids, 5) for n in range(8)]
    done = at_once([partial(life.client.reorder, one) for one in wished])
    assert [one.exception() for one in done] == [None] * 8
    assert order(life) in wished
    assert places(life) == before
    life.check_versions()

"""Two transactions at once on PostgreSQL, made to meet: each pair ends as if one had come after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from headway.engine.maintenance.recovery import Recovery
from headway.errors import CommitUnknown, HeadwayError, Unreachable, WrongState
from headway.model.jobs.outcome import Completed
from headway.store import workers
from headway.store.db import Tx, open_database
from headway.store.postgres.database import POOL_SIZE
from tests.support import committed
from tests.support.life import BROKEN, FINAL, HOUR, Life
from tests.support.pair import Pair, kill
from tests.support.waiting import PATIENCE, at_once, until


@pytest.fixture
def pair(postgres_url: str) -> Iterator[Pair]:
    with Pair(postgres_url) as pair:
        yield pair
        pair.check_versions()


# --- claims ---


def test_two_claimers_at_once_keep_the_limit(pair: Pair) -> None:
    ids = [pair.enqueue() for _ in range(3)]
    with pair.open_at("claim:take", pair.claim_next) as first:
        second = pair.waiting(pair.claim_next)
    assert [claim.job_id for claim in first.result()] == ids[:1]
    assert second.result(PATIENCE) == []
    assert pair.sql("select count(*) from hw_job where status = 3") == [(1,)]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_many_claimers_at_once_keep_the_limit_and_the_order(pair: Pair, limit: int) -> None:
    pair.set_limit(limit)
    ids = [pair.enqueue() for _ in range(12)]
    taken = [claim.job_id for future in at_once([lambda: pair.claim_next(2)] * 6) for claim in future.result()]
    assert sorted(taken) == ids[:limit]


def test_a_claim_passes_over_a_job_that_is_being_cancelled(pair: Pair) -> None:
    pair.set_limit(None)
    one, other = pair.enqueue(), pair.enqueue()
    with pair.open_at("cancel:commit", lambda: pair.client.cancel(one)):
        assert [claim.job_id for claim in pair.claim_next(2)] == [other]
    assert pair.status(one) == "CANCELLED"
    assert pair.run_status(one) == "no run"


def test_a_cancel_that_comes_during_the_claim_becomes_a_stop_request(pair: Pair) -> None:
    job_id = pair.enqueue()
    with pair.open_at("claim:commit", pair.claim_next) as claimed:
        # The gate stands before the taking and the commit, which go in one round trip: hold the row as the taking does.
        cancel = pair.pool.submit(pair.client.cancel, job_id)
        cancel.result(PATIENCE)
    assert claimed.result() == []
    assert pair.status(job_id) == "CANCELLED"
    again = pair.enqueue()
    with taken_but_not_committed(pair, again):
        cancel = pair.waiting(lambda: pair.client.cancel(again))
    job = cancel.result(PATIENCE)
    assert (job.status.name, job.stop.value if job.stop else None) == ("RUNNING", "cancel")
    assert pair.end(pair.held(again), BROKEN)
    assert pair.status(again) == "CANCELLED"


@contextmanager
def taken_but_not_committed(pair: Pair, job_id: int) -> Iterator[None]:
    tx = pair.database.begin("claim")
    try:
        picks = f'{{"{job_id}": {next(pair.slots)}}}'
        assert tx.run("take", picks=picks, worker_id=pair.worker_id, actor=pair.actor().text())
        yield
        tx.commit()
    finally:
        pair.database.end(tx)


def test_params_are_those_of_before_or_after_an_edit_and_never_change_later(pair: Pair) -> None:
    one = pair.enqueue(params='{"n":1}')
    with pair.open_at("edit:commit", lambda: pair.client.edit(one, params={"n": 2})):
        assert pair.claim_next() == []
    assert [claim.params for claim in pair.claim_next()] == ['{"n":2}']
    assert pair.sql(f"select params from hw_run where job_id = {one}") == [('{"n":2}',)]
    other = pair.enqueue(params='{"n":1}')
    with taken_but_not_committed(pair, other):
        edit = pair.waiting(lambda: pair.client.edit(other, params={"n": 2}))
    with pytest.raises(WrongState, match="Cannot modify params after dispatch"):
        edit.result(PATIENCE)
    assert pair.sql(
        f"select j.params, r.params from hw_job j join hw_run r on r.job_id = j.id where j.id = {other}"
    ) == [('{"n":1}', '{"n":1}')]


# --- what is due ---


def test_a_job_that_is_being_cancelled_is_not_promoted(pair: Pair) -> None:
    job_id = pair.in_state("SCHEDULED")
    pair.clock.advance(60)
    with pair.open_at("cancel:commit", lambda: pair.client.cancel(job_id)):
        assert pair.promote() == 0
    assert pair.events(job_id) == ["job.created", "job.cancelled"]
    other = pair.in_state("SCHEDULED")
    pair.clock.advance(60)
    with pair.open_at("promote:commit", pair.promote):
        cancel = pair.waiting(lambda: pair.client.cancel(other))
    assert cancel.result(PATIENCE).gate == 0
    assert pair.events(other) == ["job.created", "job.promoted", "job.cancelled"]


def test_a_job_is_claimed_or_expires_and_never_both(pair: Pair) -> None:
    one, other = (pair.enqueue(expires_at=pair.clock.now() + HOUR) for _ in range(2))
    with taken_but_not_committed(pair, one):
        pair.clock.time += HOUR
        assert pair.promote() == 1  # the other one
        assert pair.status(other) == "SKIPPED"
    assert pair.promote() == 0
    assert pair.status(one) == "RUNNING"


# --- ends ---


def test_a_cancel_that_comes_after_the_end_is_refused(pair: Pair) -> None:
    claim = pair.claim(pair.enqueue())
    with pair.open_at("finish:commit", lambda: pair.end(claim, Completed())):
        cancel = pair.waiting(lambda: pair.client.cancel(claim.job_id))
    with pytest.raises(WrongState) as refusal:
        cancel.result(PATIENCE)
    assert refusal.value.facts["status"] == "COMPLETED"


@pytest.mark.parametrize(
    ("outcome", "cancelled", "interrupted"),
    [(Completed(), "COMPLETED", "COMPLETED"), (BROKEN, "CANCELLED", "PAUSED"), (FINAL, "CANCELLED", "PAUSED")],
)
def test_an_end_that_comes_after_a_stop_request_has_seen_it(
    pair: Pair, outcome: Any, cancelled: str, interrupted: str
) -> None:
    """The request was made while the end was on its way: the decision reads the row in its own transaction."""
    for verb, expected in ((pair.client.cancel, cancelled), (pair.client.interrupt, interrupted)):
        claim = pair.claim(pair.enqueue())
        label = "cancel" if verb == pair.client.cancel else "interrupt"
        with pair.open_at(f"{label}:commit", lambda verb=verb, claim=claim: verb(claim.job_id)):  # type: ignore[misc]
            end = pair.waiting(lambda claim=claim: pair.end(claim, outcome))  # type: ignore[misc]
        assert end.result(PATIENCE)
        assert pair.status(claim.job_id) == expected
        assert pair.sql(f"select id from hw_job where retry_of = {claim.job_id}") == []


def orphan(pair: Pair) -> int:
    gone = pair.new_worker()
    claim = pair.claim(pair.enqueue(), worker_id=gone)
    pair.database.transact("leave", lambda tx: workers.retire(tx, gone, "shut down"))
    return claim.job_id


def retries(pair: Pair, job_id: int) -> int:
    return int(pair.sql(f"select count(*) from hw_job where retry_of = {job_id}")[0][0])


def test_two_recoveries_of_one_orphan_make_one_retry(pair: Pair) -> None:
    job_id = orphan(pair)
    with pair.open_at("recover:commit", Recovery(pair.database).tick):
        Recovery(pair.database).tick()  # the job is locked: it is the other one's
    assert (pair.status(job_id), retries(pair, job_id)) == ("FAILED", 1)
    assert pair.events(job_id) == ["job.created", "job.claimed", "job.failed"]


def test_a_recovery_that_looked_before_the_other_one_was_done_changes_nothing(pair: Pair) -> None:
    job_id = orphan(pair)
    with pair.open_at("recover:try_lock_jobs", Recovery(pair.database).tick) as late:
        Recovery(pair.database).tick()
        assert pair.status(job_id) == "FAILED"
    assert late.exception() is None
    assert retries(pair, job_id) == 1
    assert pair.events(job_id) == ["job.created", "job.claimed", "job.failed"]


def test_an_end_that_meets_its_recovery_is_late(pair: Pair) -> None:
    gone = pair.new_worker()
    claim = pair.claim(pair.enqueue(), worker_id=gone)
    pair.database.transact("leave", lambda tx: workers.retire(tx, gone, "lost"))
    with pair.open_at("recover:commit", Recovery(pair.database).tick):
        end = pair.waiting(lambda: pair.end(claim, Completed(), worker_id=gone))
    assert end.result(PATIENCE) is False
    assert (pair.status(claim.job_id), retries(pair, claim.job_id)) == ("FAILED", 1)


# --- keys ---


@pytest.mark.parametrize("kept", [True, False])
def test_who_enqueues_a_key_second_waits_for_the_first_to_be_stored_or_not(pair: Pair, kept: bool) -> None:
    pair.enqueue()

    def first() -> tuple[int, bool]:
        def work(tx: Tx) -> tuple[int, bool]:
            (answer,) = pair.client.intake.insert(tx, pair.client.tenant_id, [(pair.new(key="k"), 1, None)])
            pair.gated.act("first:made")
            if not kept:
                raise HeadwayError("changed my mind")
            return answer

        return pair.database.transact("first", work)

    with pair.open_at("first:made", first) as one:
        other = pair.waiting(lambda: pair.client.enqueue(pair.new(key="k")))
    if kept:
        assert other.result(PATIENCE) == (one.result()[0], False)
    else:
        assert other.result(PATIENCE)[1]
    assert pair.sql("select count(*) from hw_job where key = 'k'") == [(1,)]


def test_between_a_failure_and_its_retry_nobody_gets_the_key(pair: Pair) -> None:
    claim = pair.claim(pair.enqueue(key="k"))
    with pair.open_at("finish:commit", lambda: pair.end(claim, BROKEN)):
        other = pair.waiting(lambda: pair.client.enqueue(pair.new(key="k")))
    job_id, created = other.result(PATIENCE)
    assert (created, pair.job(job_id).retry_of) == (False, claim.job_id)


def test_a_key_whose_holder_ends_between_two_looks_is_given_after_all(pair: Pair) -> None:
    claim = pair.claim(pair.enqueue(key="k"))
    pair.gated.before("job_with_key", lambda: pair.end(claim, Completed()))
    job_id, created = pair.client.enqueue(pair.new(key="k"))
    assert (created, job_id > claim.job_id) == (True, True)


def test_a_key_that_is_taken_while_a_job_is_retried_by_hand_is_named(pair: Pair) -> None:
    failed = pair.in_state("FAILED", key="k")
    taken: list[int] = []
    pair.gated.before("insert_retry", lambda: taken.append(pair.enqueue(key="k")))
    with pytest.raises(WrongState, match="taken by job") as refusal:
        pair.client.retry(failed)
    assert str(taken[0]) in str(refusal.value)
    assert retries(pair, failed) == 0


# --- retries and moves ---


def test_a_retry_that_is_claimed_while_it_is_brought_forward_is_not_touched(pair: Pair) -> None:
    job_id = pair.in_state("retried")
    pair.clock.advance(10)
    pair.promote()
    ((retry,),) = pair.sql(f"select id from hw_job where retry_of = {job_id}")
    # The parent is locked first, then the chain is walked, then its last job is locked.
    pair.gated.before("automatic_retry", lambda: pair.gated.before("lock_job", lambda: pair.claim(retry)))
    with pytest.raises(WrongState, match=f"job {retry} is RUNNING"):
        pair.client.retry(job_id)
    assert pair.events(retry)[-1] == "job.claimed"
    assert retries(pair, job_id) == 1


def test_two_retries_by_hand_at_once_are_two_jobs(pair: Pair) -> None:
    failed = pair.in_state("FAILED")
    with pair.open_at("retry:commit", lambda: pair.client.retry(failed)):
        other = pair.waiting(lambda: pair.client.retry(failed))
    other.result(PATIENCE)
    assert retries(pair, failed) == 2


def test_two_resumes_at_once_are_one(pair: Pair) -> None:
    job_id = pair.in_state("PAUSED")
    with pair.open_at("resume:commit", lambda: pair.client.resume(job_id)):
        other = pair.waiting(lambda: pair.client.resume(job_id))
    with pytest.raises(WrongState):
        other.result(PATIENCE)
    assert pair.events(job_id).count("job.resumed") == 1


def squeezed(pair: Pair, count: int) -> list[int]:
    pair.set_limit(None)
    ids = [pair.enqueue() for _ in range(count)]
    for n, job_id in enumerate(ids):
        pair.raw.execute(f"update hw_job set position = {5000 + n} where id = {job_id}")
    return ids


def test_a_neighbour_that_ends_while_it_is_respaced_stays_as_it_ended(pair: Pair) -> None:
    ids = squeezed(pair, 4)
    claim = pair.claim(ids[0])
    pair.gated.before("respace", lambda: pair.end(claim, Completed()))
    pair.client.move(ids[3], before=ids[2])
    assert pair.events(ids[0])[-1] == "job.completed"
    assert pair.pick(9) == [ids[1], ids[3], ids[2]]


def test_a_neighbour_that_gets_another_priority_while_it_is_respaced_keeps_its_new_place(pair: Pair) -> None:
    ids = squeezed(pair, 4)
    first = pair.enqueue(priority=7)
    pair.gated.before("respace", lambda: pair.client.edit(ids[0], priority=7))
    pair.client.move(ids[3], before=ids[2])
    assert pair.pick(9) == [first, ids[0], ids[1], ids[3], ids[2]]


def test_moves_at_once_come_one_after_the_other(pair: Pair) -> None:
    ids = squeezed(pair, 5)
    with pair.open_at("move:commit", lambda: pair.client.move(ids[4], before=ids[1])):
        other = pair.waiting(lambda: pair.client.move(ids[1], to="top"))
    other.result(PATIENCE)
    assert pair.pick(9) == [ids[1], ids[0], ids[4], ids[2], ids[3]]


def test_moves_beside_each_other_at_once_do_not_lock_each_other_out(pair: Pair) -> None:
    ids = [pair.enqueue() for _ in range(6)]
    calls = [
        lambda n=n, m=m: pair.client.move(ids[n], before=ids[m])
        for n, m in ((0, 5), (5, 0), (1, 4), (4, 1), (2, 3), (3, 2))
    ]
    for done in at_once(calls):
        done.result()
    assert pair.gated.conflicts == 0


# --- conflicts ---


def test_a_deadlock_is_run_again_from_the_beginning(pair: Pair) -> None:
    """Two transactions lock two jobs in opposite order: the database ends one, and it is done after the other."""
    a, b = pair.enqueue(), pair.enqueue()
    both_have_one = threading.Barrier(2)
    begun: list[int] = []

    def work(tx: Tx, mine: int, theirs: int) -> None:
        tx.connection.execute("set local deadlock_timeout = '20ms'")  # type: ignore[attr-defined]
        begun.append(mine)
        tx.run("bump_version", id=mine)
        if len(begun) <= 2:
            both_have_one.wait(PATIENCE)
        tx.run("bump_version", id=theirs)

    calls = [lambda x=x, y=y: pair.database.transact("cross", lambda tx: work(tx, x, y)) for x, y in ((a, b), (b, a))]
    for done in at_once(calls):
        done.result()
    assert len(begun) == 3
    assert pair.sql(f"select version from hw_job where id in ({a}, {b})") == [(3,), (3,)]
    pair.raw.execute(f"update hw_job set version = 1 where id in ({a}, {b})")


def test_keys_in_opposite_order_from_two_callers_give_both_an_answer(pair: Pair) -> None:
    pair.set_for_all("deadlock_timeout", "'20ms'")
    for n in range(10):
        keys = [f"{n}a", f"{n}b", f"{n}c"]
        calls = [
            lambda keys=order: pair.client.enqueue_many([pair.new(key=key) for key in keys])
            for order in (keys, keys[::-1], keys, keys[::-1])
        ]
        answers = [done.result() for done in at_once(calls)]
        assert all(len(answer) == 3 for answer in answers)
        assert sum(created for answer in answers for _, created in answer) == 3
    assert pair.sql("select count(*) from hw_job") == [(30,)]


def test_a_serialisation_failure_is_run_again_from_the_beginning(pair: Pair) -> None:
    job_id = pair.enqueue()
    tries: list[int] = []

    def work(tx: Tx) -> None:
        tx.connection.execute("set transaction isolation level serializable")  # type: ignore[attr-defined]
        tries.append(1)
        tx.run("read_job", id=job_id)
        if len(tries) == 1:
            pair.client.edit(job_id, priority=5)
        tx.run("mark_carries", id=job_id)
        tx.run("forget_checkpoint", job_id=job_id)
        tx.connection.execute(f"update hw_job set priority = priority + 1 where id = {job_id}")  # type: ignore[attr-defined]

    with pytest.raises(psycopg.errors.SerializationFailure):
        pair.database.transact("past the seam", work)
    tries.clear()

    def through_the_seam(tx: Tx) -> None:
        tx.connection.execute("set transaction isolation level serializable")  # type: ignore[attr-defined]
        tries.append(1)
        tx.run("read_job", id=job_id)
        if len(tries) == 1:
            pair.client.edit(job_id, priority=6)
        tx.run("lock_job", id=job_id)

    pair.database.transact("serial", through_the_seam)
    assert len(tries) == 2


def test_an_enqueue_by_itself_is_run_again_too(pair: Pair) -> None:
    """Its one statement can fail to serialise where the server's default is stricter than ours."""
    pair.enqueue()
    pair.raw.execute(
        "create function fail_once() returns trigger language plpgsql as $$ begin "
        "if nextval('failures') = 1 then raise exception 'not now' using errcode = 'serialization_failure'; end if; "
        "return new; end $$"
    )
    pair.raw.execute("create sequence failures")
    pair.raw.execute("create trigger failing before insert on hw_job for each row execute function fail_once()")
    job_id = pair.enqueue()
    pair.raw.execute("drop trigger failing on hw_job")
    assert pair.status(job_id) == "QUEUED"
    assert pair.sql("select count(*) from hw_job") == [(2,)]


# --- connections that break ---


def test_idle_connections_that_died_are_replaced_unseen(pair: Pair) -> None:
    for _ in range(3):
        at_once([lambda: pair.client.get(pair.enqueue())] * 4)
        kill(pair, where="true")
        assert pair.client.enqueue(pair.new())[1]
        kill(pair, where="true")
        assert pair.client.cancel(pair.enqueue()).status.name == "CANCELLED"
        kill(pair, where="true")
        with pair.database.read() as tx:
            assert tx.run("ping") == [(1,)]


def test_a_connection_that_dies_before_the_commit_leaves_nothing(pair: Pair) -> None:
    job_id = pair.enqueue()
    before = pair.everything()
    pair.gated.before("cancel:save_job", lambda: kill(pair, where="state = 'idle in transaction'"))
    with pytest.raises(Unreachable, match="PostgreSQL cannot be reached") as broken:
        pair.client.cancel(job_id)
    assert not isinstance(broken.value, CommitUnknown)
    assert "\n" not in str(broken.value)
    assert pair.everything() == before
    assert pair.client.cancel(job_id).status.name == "CANCELLED"


def test_a_connection_that_dies_at_the_commit_leaves_it_unknown(pair: Pair) -> None:
    """Whoever gets this asks the database what it holds."""
    job_id = pair.enqueue()
    pair.gated.before("cancel:commit", lambda: kill(pair, where="state = 'idle in transaction'"))
    with pytest.raises(CommitUnknown, match="not known"):
        pair.client.cancel(job_id)
    assert pair.status(job_id) == "QUEUED"
    other = pair.enqueue()
    pair.gated.before("claim:commit", lambda: kill(pair, where="state like 'idle in transaction%'"))
    with pytest.raises((CommitUnknown, Unreachable)):
        pair.take(other)
    assert pair.status(other) == "QUEUED"
    assert pair.run_status(other) == "no run"


def test_a_connection_that_dies_inside_the_commit_leaves_it_unknown(pair: Pair) -> None:
    """The server is at work on the commit when its process is ended."""
    job_id = pair.enqueue()
    pair.raw.execute(
        "create function slow() returns trigger language plpgsql as"
        " $$ begin perform pg_advisory_xact_lock(1); return null; end $$"
    )
    pair.raw.execute(
        "create constraint trigger slow after update on hw_job deferrable initially deferred"
        " for each row execute function slow()"
    )
    pair.raw.execute("select pg_advisory_lock(1)")
    cancel = pair.waiting(lambda: pair.client.cancel(job_id))
    kill(pair, where="wait_event_type = 'Lock'")
    with pytest.raises(CommitUnknown):
        cancel.result(PATIENCE)
    pair.raw.execute("select pg_advisory_unlock(1)")
    pair.raw.execute("drop trigger slow on hw_job")
    assert pair.status(job_id) == "QUEUED"


@pytest.mark.direct("a pooler does not say truly why a session ended: tests/store/test_pooler.py has what holds there")
def test_an_enqueue_whose_connection_dies_is_stored_once(pair: Pair) -> None:
    pair.enqueue()
    pair.raw.execute("begin")
    pair.raw.execute("lock table hw_event in exclusive mode")
    enqueue = pair.pool.submit(pair.enqueue)
    with psycopg.connect(pair.url, autocommit=True) as other:
        waits = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        until(lambda: other.execute(waits).fetchall(), "that it waits")
        killed = {row[0] for row in other.execute(waits).fetchall()}
        other.execute("select pg_terminate_backend(%s, 10000)", [next(iter(killed))])
        until(lambda: {row[0] for row in other.execute(waits).fetchall()} - killed, "that it tries again")
    pair.raw.execute("commit")
    assert pair.status(enqueue.result(PATIENCE)) == "QUEUED"
    assert pair.sql("select count(*) from hw_job") == [(2,)]


def test_enqueues_under_a_storm_of_dying_connections_are_never_doubled(postgres_url: str) -> None:
    """Each is stored once when it was acknowledged, and at most once when its commit is unknown."""
    with Life(postgres_url) as life:
        life.enqueue()
        stop = threading.Event()
        answers: dict[int, str] = {}
        killed = 0

        def enqueue(start: int) -> None:
            for n in range(start, start + 1000):
                if n >= start + 60 and killed > 20:
                    return
                try:
                    life.enqueue(
                        params=f'{{"n":{n}}}',
                        task=f"storm{n}" if n % 7 == 0 else "storm",
                        key=f"k{n}" if n % 3 == 0 else None,
                    )
                    answers[n] = "stored"
                except CommitUnknown:
                    answers[n] = "unknown"
                except Unreachable:
                    answers[n] = "not stored"

        def storm() -> None:
            nonlocal killed
            with psycopg.connect(postgres_url, autocommit=True) as raw:
                text = (
                    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
                    " and pid <> pg_backend_pid() and random() < 0.5"
                )
                while not stop.is_set():
                    killed += len(raw.execute(text).fetchall())
                    stop.wait(0.005)

        with ThreadPoolExecutor(4) as pool:
            killer = pool.submit(storm)
            workers_ = [pool.submit(enqueue, start) for start in (1000, 2000, 3000)]
            for worker in workers_:
                worker.result(PATIENCE)
            stop.set()
            killer.result(PATIENCE)
        assert killed > 20
        found = [
            int(row[0])
            for row in life.sql("select params::json ->> 'n' from hw_job where params like '%n\":%' and id > 1")
        ]
        assert len(found) == len(set(found))
        stored = {n for n, answer in answers.items() if answer == "stored"}
        unknown = {n for n, answer in answers.items() if answer == "unknown"}
        assert stored <= set(found) <= stored | unknown
        life.check_versions()


# --- the pool ---


def test_a_statement_that_fails_leaves_the_pool_usable(pair: Pair) -> None:
    running, waiting = pair.in_state("RUNNING"), pair.enqueue()
    slot = pair.job(running).slot or 0
    nobody = {"host": "", "boot": "", "pid": 1, "process_start": 1, "kind": "worker"}
    for _ in range(2 * POOL_SIZE):
        with pytest.raises(psycopg.errors.UniqueViolation):  # in a pipeline, with its commit
            pair.database.transact(
                "claim", lambda tx: committed.take(tx, pair.worker_id, pair.actor(), [waiting], [slot])
            )
        with pytest.raises(psycopg.errors.CheckViolation):
            pair.database.once("add_worker", id=1, **nobody, slots=0, tasks="", lease=1, tenants=None)
        with pytest.raises(ZeroDivisionError):
            pair.database.transact("broken", lambda tx: (tx.run("bump_version", id=waiting), 1 // 0))
    assert pair.gated.pool.get_stats()["pool_size"] <= POOL_SIZE
    assert pair.claim(waiting).fence == 1
    assert at_once([lambda: pair.enqueue()] * (2 * POOL_SIZE))[0].result() > 0


def test_a_server_that_is_not_there_is_said_in_one_line() -> None:
    database = open_database("postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(Unreachable, match="PostgreSQL cannot be reached") as refusal:
        database.transact("ping", lambda tx: tx.run("ping"))
    assert "\n" not in str(refusal.value)
    with pytest.raises(Unreachable):
        database.once("ping")
    database.close()


def test_a_visitor_without_the_right_to_write_is_told(pair: Pair) -> None:
    role = f"reader_{pair.raw.info.backend_pid}"
    pair.raw.execute(f"create role {role} login".encode())
    pair.raw.execute(f"grant select on all tables in schema public to {role}".encode())
    database = open_database(f"{pair.url}&user={role}")
    try:
        with pytest.raises(Unreachable, match="refuses writes by this user"):
            database.transact("tenant", lambda tx: tx.run("resume_tenant", id=1))
        with pytest.raises(Unreachable, match="refuses writes by this user"):
            database.once("resume_tenant", id=1)
    finally:
        database.close()
        pair.raw.execute(f"drop owned by {role}; drop role {role}".encode())

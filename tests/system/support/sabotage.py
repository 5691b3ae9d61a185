"""Known bugs, to be switched on one by one in a forked process: the harness is worth something if it finds them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from headway import fault_points, testing
from headway.engine.maintenance import recovery
from headway.engine.webhooks import request as webhook_request
from headway.engine.worker import finish, lease, turn, worker
from headway.engine.worker.finish import Ended
from headway.model.groups.group import Group
from headway.model.jobs.finish import FinishInputs
from headway.model.jobs.job import Actor, Claim, JobRecord
from headway.store import statements, workers
from headway.store.db import Database, Tx
from headway.store.groups import advance as groups
from headway.store.jobs import changes as jobs
from headway.store.jobs import reports
from headway.store.postgres import fragments as postgres_fragments
from headway.store.round_trip import Pending
from headway.store.sqlite import fragments as sqlite_fragments

ALL: dict[str, Callable[[], None]] = {}
# The script in which each bug does its harm.
WHERE: dict[str, str] = {}
# The point at which it is best killed, where it takes a kill.
AT: dict[str, str] = {}


def bug(script: str, at: str | None = None) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def add(switch_on: Callable[[], None]) -> Callable[[], None]:
        ALL[switch_on.__name__] = switch_on
        WHERE[switch_on.__name__] = script
        if at is not None:
            AT[switch_on.__name__] = at
        return switch_on

    return add


def say(tx: Any, text: str) -> list[tuple[Any, ...]]:
    """A statement of no name."""
    found: list[tuple[Any, ...]] = tx.connection.execute(text).fetchall()
    return found


def _load_by(load: Callable[[str], dict[str, str]]) -> None:
    """Other statements; those that were made before this process began are forgotten."""
    sqlite_fragments.load_statements = postgres_fragments.load_statements = load  # type: ignore[attr-defined,assignment]
    sqlite_fragments.texts.cache_clear()
    postgres_fragments.texts.cache_clear()


@bug("zombie")
def finish_without_fence() -> None:
    """Whoever says that a job has ended is believed."""
    fenced = finish.finish

    def believe(tx: Tx, worker_id: int, actor: Actor, ended: Sequence[Ended], *_: object) -> list[Ended]:
        for end in ended:
            now = jobs.lock(tx, end.claim.job_id)
            claim = end.claim._replace(fence=now.fence)
            fenced(tx, now.worker_id or worker_id, actor, [end._replace(claim=claim)])
        return []

    def believe_at_once(*ends: Any) -> Pending[list[Ended]]:
        return Pending.done(believe(*ends))

    finish.finish = testing.finish = believe  # type: ignore[attr-defined]
    turn.send_ends = believe_at_once  # type: ignore[attr-defined,assignment]


@bug("zombie")
def reports_without_fence() -> None:
    """Whoever reports for a job is believed."""
    reports.require = lambda *_: None
    reports.still_held = lambda tx, worker_id, claims: {job_id for job_id, _ in claims}


@bug("zombie")
def beat_without_fence() -> None:
    """A worker that was given up may renew its lease."""

    def renew(tx: Tx, worker_id: int, lease: float) -> bool:
        say_only(tx, f"update hw_worker set beat = beat + 1 where id = {worker_id}")
        return True

    workers.beat = renew


def say_only(tx: Any, text: str) -> None:
    tx.connection.execute(text)


@bug("failing")
def retry_in_a_second_transaction() -> None:
    """The failure is stored, then its retry."""
    insert, transact = jobs.insert_retry, Database.transact
    later: list[Callable[[Tx], int]] = []

    def postpone(tx: Tx, parent: JobRecord, actor: Actor, *, auto: bool, **wishes: Any) -> int:
        if not auto:
            return insert(tx, parent, actor, auto=auto, **wishes)
        later.append(lambda tx: insert(tx, parent, actor, auto=True, **wishes))
        return 0

    def twice(self: Database, label: str, work: Callable[..., Any], *args: Any, **more: Any) -> Any:
        answer = transact(self, label, work, *args, **more)
        while later:
            transact(self, "second", later.pop())
        return answer

    jobs.insert_retry = postpone
    Database.transact = twice  # type: ignore[method-assign, assignment]


@bug("stops", at="beat.committed")
def stop_forgotten_when_seen() -> None:
    """The flag of a stop request is cleared by whoever reads it."""
    read = workers.stop_requests

    def forget(tx: Tx, worker_id: int) -> list[Any]:
        found = read(tx, worker_id)
        if tx.label == "beat":
            say_only(tx, f"update hw_job set stop = null, stop_by = null where worker_id = {worker_id} and status = 3")
        return found

    workers.stop_requests = forget


@bug("stops")
def decision_without_the_stop() -> None:
    """What becomes of a job is decided by what was known of it when it was claimed."""
    read = finish._standing

    def outdated(tx: Tx, job: JobRecord, group: Group | None) -> FinishInputs:
        return read(tx, replace(job, stop=None), group)

    finish._standing = outdated


@bug("neighbours")
def recovery_takes_every_running_row() -> None:
    """Whatever is RUNNING when recovery looks is taken for lost."""
    loaded = statements.load_statements

    def load(dialect: str) -> dict[str, str]:
        text = (
            "select j.id, j.worker_id, j.fence, j.slot, j.group_id from hw_job j where j.status = 3"
            " and (j.worker_id, j.slot) > (:worker_id + 0, :slot + 0) order by j.worker_id, j.slot limit (:limit + 0)"
        )
        return {**loaded(dialect), "orphans": text}

    _load_by(load)


@bug("suspend")
def recovery_by_elapsed_time() -> None:
    """A lease that is over by the wall clock is over."""

    def over(self: recovery.Recovery, worker: workers.SeenWorker) -> bool:
        return worker.lease_until < worker.now

    recovery.Recovery._silent_for_a_lease = over  # type: ignore[method-assign]


@bug("neighbours")
def worker_id_is_the_host() -> None:
    """All workers of a host have one number, and the last one to start has its row."""
    identify, register = lease.new_identity, workers.register

    def alike() -> workers.Identity:
        return replace(identify(), id=4711)

    def take_over(tx: Tx, who: workers.Identity, actor: Actor, **wishes: Any) -> None:
        if say(tx, f"select 1 from hw_worker where id = {who.id}"):
            own = f"pid = {who.pid}, process_start = {who.process_start}, state = 'live', gone_at = null"
            say_only(tx, f"update hw_worker set {own} where id = {who.id}")
        else:
            register(tx, who, actor, **wishes)

    lease.new_identity = alike
    workers.register = take_over


@bug("siblings")
def stage_advanced_by_counting_without_the_lock() -> None:
    """Who ends a step counts the others before its transaction, and so does the one beside it: each sees one left."""
    turn, advance = worker.Worker._turn, groups.advance
    counted, meet = threading.local(), threading.Barrier(2)

    def count_first(self: worker.Worker, ended: list[Any], *rest: Any) -> None:
        claims = [running.claim for running, _ in ended if running.claim.group_id is not None]
        counted.others = {claim.group_id: _others(self.database, claim) for claim in claims}
        if claims:
            with suppress(threading.BrokenBarrierError):
                meet.wait(0.5)
        turn(self, ended, *rest)

    def trust(tx: Tx, group: Group, actor: Actor, **more: Any) -> None:
        if not getattr(counted, "others", {}).get(group.id):
            advance(tx, group, actor, **more)

    worker.Worker._turn = count_first  # type: ignore[method-assign, assignment]
    groups.advance = trust


def _others(database: Database, claim: Claim) -> int:
    text = f"select count(*) from hw_job where group_id = {claim.group_id} and stage = {claim.stage} and status <= 5"
    with database.read() as tx:
        ((found,),) = say(tx, f"{text} and id <> {claim.job_id}")
    return int(found)


@bug("plans")
def group_concluded_before_retries_end() -> None:
    """A stage is over when the jobs it was made with have ended, whether or not one of them is tried again."""
    loaded = statements.load_statements

    def load(dialect: str) -> dict[str, str]:
        found = loaded(dialect)
        names = ("stage_is_open", "ended_stages", "group_is_open")
        return {
            **found,
            **{
                name: found[name].replace("status {is_unfinished}", "status {is_unfinished} and retry_of is null")
                for name in names
            },
        }

    _load_by(load)


@bug("hooks", at="cancel.committed")
def outbox_in_a_second_transaction() -> None:
    """The event is stored, then the delivery."""
    transact = Database.transact
    columns = "tenant_id, endpoint_id, event_id, event, job_id, url, max_tries, due_at, created_at"

    def twice(self: Database, label: str, work: Callable[..., Any], *args: Any, **more: Any) -> Any:
        if label != "cancel":
            return transact(self, label, work, *args, **more)
        later: list[tuple[Any, ...]] = []

        def without(tx: Tx) -> Any:
            ((before,),) = say(tx, "select coalesce(max(id), 0) from hw_delivery")
            answer = work(tx, *args)
            later[:] = say(tx, f"select {columns} from hw_delivery where id > {before}")
            say_only(tx, f"delete from hw_delivery where id > {before}")
            return answer

        def late(tx: Tx) -> None:
            for row in later:
                values = ", ".join("null" if value is None else repr(value) for value in row)
                say_only(tx, f"insert into hw_delivery ({columns}) values ({values})")

        answer = transact(self, label, without, **more)
        for _ in range(5):
            fault_points.point("in_between")  # a while, so that a kill at every fifth point comes into it
        transact(self, "second", late)
        return answer

    Database.transact = twice  # type: ignore[method-assign, assignment]


@bug("hook_failures")
def webhook_body_rebuilt_per_try() -> None:
    """Each try renders what it sends anew."""
    make = webhook_request.make_request
    counted = itertools.count()

    def rebuild(prepared: webhook_request.PreparedDelivery, at: int) -> Any:
        request = make(prepared, at)
        return replace(request, body=request.body + b" " * next(counted))

    webhook_request.make_request = rebuild

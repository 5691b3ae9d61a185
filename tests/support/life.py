"""The life of jobs, step by step, for tests of the model's rules in the database: every state by its real verbs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import apsw
import psycopg

from headway.clock import micros
from headway.engine.client.client import Client
from headway.engine.tasks.registry import Registry
from headway.engine.worker.finish import Ended, finish
from headway.model.jobs.job import Actor, Claim, JobRecord, NewJob, Options
from headway.model.jobs.outcome import Completed, Failed, FailureKind, Lost, Outcome, Skipped, StoppedByRequest
from headway.model.jobs.retry import RetryPolicy
from headway.model.jobs.states import State
from headway.store import workers
from headway.store.db import Database, Row, Tx, open_database
from headway.store.jobs import changes as jobs
from headway.store.migrations import migrate
from headway.store.queue import claims, select, targets
from headway.store.queue.claim_snapshot import Likely
from headway.store.queue.lanes import BucketCache
from headway.store.queue.select import Serves
from headway.testing import FrozenClock
from tests.support import committed

ADA = Actor("user", "7", "ada")
TASK = "story.generate"
HOUR = micros(3600)
BROKEN = Failed(FailureKind.EXCEPTION, "ValueError: broken")
FINAL = Failed(FailureKind.EXCEPTION, "hopeless", final=True)
_worker_ids = itertools.count(1001)


class Life:
    """One database with a clock that stands still, a person (`client`) and a worker that claims what it is told to."""

    def __init__(self, url: str, *, database: Database | None = None, clock: FrozenClock | None = None) -> None:
        self.url = url
        self.clock = clock or FrozenClock()
        self.database = database or open_database(url, clock=self.clock)
        migrate(self.database)
        self.client = Client(self.database, Registry(), actor=ADA)
        self.worker_id = self.new_worker()
        self.slots = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.database.close()

    # --- workers ---

    def new_worker(self) -> int:
        worker_id = next(_worker_ids)
        who = workers.Identity(worker_id, "elsewhere", "boot", 1, 1)
        self.database.transact(
            "register", lambda tx: workers.register(tx, who, self.actor(worker_id), slots=9, tasks=[TASK], lease=60.0)
        )
        return worker_id

    def actor(self, worker_id: int | None = None) -> Actor:
        return Actor("worker", workers.worker_name(worker_id or self.worker_id), "elsewhere:1")

    def take(self, *ids: int, worker_id: int | None = None) -> list[Claim]:
        """Claims exactly these jobs, room or not, as far as they are there for the taking."""
        owner = worker_id or self.worker_id
        slots = [next(self.slots) for _ in ids]

        def work(tx: Tx) -> list[Claim]:
            if touched := {target for (target,) in tx.run("take_touched")}:
                targets.choose_heads(tx, touched)
            return committed.take(tx, owner, self.actor(owner), ids, slots)

        return self.database.transact("claim", work)

    def claim(self, job_id: int, *, worker_id: int | None = None) -> Claim:
        (claim,) = self.take(job_id, worker_id=worker_id)
        return claim

    def pick(self, count: int) -> list[int]:
        """What a claim would take now, in order."""
        lanes = BucketCache(self.database)

        def work(tx: Tx) -> list[int]:
            tx.run("pin_plans")
            view, _ = claims.lock_and_look(tx, lanes, self.actor())
            return [one.job_id for one in select.pick(tx, view, lanes, lambda _: True, count, grant=True)]

        return self.database.transact("pick", work)

    def claim_in(
        self,
        tx: Tx,
        slots: Sequence[int],
        worker_id: int | None = None,
        *,
        knows: Callable[[str], bool] = lambda _: True,
        serves: Serves = None,
        lanes: BucketCache | None = None,
    ) -> list[Claim]:
        """A claim as a worker makes it: lock, look, take."""
        owner, lanes = worker_id or self.worker_id, lanes or BucketCache(self.database)
        view, _ = claims.lock_and_look(tx, lanes, self.actor(owner), self._likely(tx, len(slots)))
        who: dict[str, Any] = {"worker_id": owner, "actor": self.actor(owner), "knows": knows, "serves": serves}
        return committed.claim(tx, view, lanes, **who, slots=slots)

    @staticmethod
    def _likely(tx: Tx, count: int) -> Likely | None:
        """A kind of work that is there, whether or not it will be the one: a worker guesses too."""
        found = tx.connection.execute("select min(bucket_id) from hw_job where gate = 1").fetchall()[0][0]  # type: ignore[attr-defined]
        return Likely(found, count) if found and count else None

    def claim_next(self, count: int = 1, **wishes: Any) -> list[Claim]:
        """A claim as a worker with so many free slots makes it."""
        slots = [next(self.slots) for _ in range(count)]
        return self.database.transact("claim", lambda tx: self.claim_in(tx, slots, **wishes))

    def end(self, claim: Claim, outcome: Outcome, *, worker_id: int | None = None) -> bool:
        """Whether the end landed."""
        owner = worker_id or self.worker_id
        ended = [Ended(claim, outcome)]
        return not self.database.transact("finish", lambda tx: finish(tx, owner, self.actor(owner), ended))

    def run(self, job_id: int, outcome: Outcome) -> JobRecord:
        assert self.end(self.claim(job_id), outcome)
        return self.job(job_id)

    def set_limit(self, capacity: int | None) -> None:
        """The global lane's."""

        def work(tx: Tx) -> None:
            ((lane_id, _, _),) = tx.run("lane_by_name", tenant_id=0, kind="policy", name="global")
            tx.run("set_lane_capacity", id=lane_id, capacity=capacity)

        self.database.transact("limit", work)

    # --- jobs ---

    def new(self, *, retry: int | RetryPolicy = 3, params: str = '{"n":1}', **fields: Any) -> NewJob:
        policy = retry if isinstance(retry, RetryPolicy) else RetryPolicy(retry)
        names = ("timeout", "budget", "on_lost", "on_error", "on_shutdown")
        options = Options(retry=policy, **{name: fields.pop(name) for name in names if name in fields})
        return NewJob(fields.pop("task", TASK), params, options.text(), **fields)

    def enqueue(self, **fields: Any) -> int:
        return self.client.enqueue(self.new(**fields))[0]

    def in_state(self, name: str, **fields: Any) -> int:
        """A job in a state of that name; names in lower case say more about how it came there."""
        return int(getattr(self, f"_{name.lower()}")(**fields))

    def _waiting(self, **fields: Any) -> int:
        return self.enqueue(hold=True, **fields)

    def _scheduled(self, **fields: Any) -> int:
        return self.enqueue(delay=micros(60), **fields)

    def _queued(self, **fields: Any) -> int:
        return self.enqueue(**fields)

    def _resumed(self, **fields: Any) -> int:
        job_id = self._paused(**fields)
        self.client.resume(job_id)
        return job_id

    def _running(self, **fields: Any) -> int:
        job_id = self.enqueue(**fields)
        self.claim(job_id)
        return job_id

    def _interrupting(self, **fields: Any) -> int:
        return self.client.interrupt(self._running(**fields)).id

    def _cancelling(self, **fields: Any) -> int:
        return self.client.cancel(self._running(**fields)).id

    def _paused(self, **fields: Any) -> int:
        job_id = self.enqueue(**fields)
        claim = self.claim(job_id)
        self.client.interrupt(job_id)
        assert self.end(claim, StoppedByRequest())
        return job_id

    def _error(self, **fields: Any) -> int:
        return self.run(self.enqueue(on_lost="hold", **fields), Lost("the worker is gone")).id

    def _completed(self, **fields: Any) -> int:
        return self.run(self.enqueue(**fields), Completed('{"ok":true}')).id

    def _failed(self, **fields: Any) -> int:
        return self.run(self.enqueue(**fields), FINAL).id

    def _released(self, **fields: Any) -> int:
        return self.client.release(self._error(**fields)).id

    def _retried(self, **fields: Any) -> int:
        return self.run(self.enqueue(**fields), BROKEN).id

    def _skipped(self, **fields: Any) -> int:
        return self.run(self.enqueue(**fields), Skipped("nothing to do")).id

    def _expired(self, **fields: Any) -> int:
        fields["expires_at"] = self.clock.now() + 1
        job_id = self.enqueue(**fields)
        self.clock.advance(1)
        self.database.transact("expire", lambda tx: tx.run("expire", actor=self.actor().text()))
        return job_id

    def _cancelled(self, **fields: Any) -> int:
        return self.client.cancel(self.enqueue(**fields)).id

    def _stopped(self, **fields: Any) -> int:
        job_id = self.enqueue(**fields)
        claim = self.claim(job_id)
        self.client.cancel(job_id)
        assert self.end(claim, StoppedByRequest())
        return job_id

    # --- looking ---

    def job(self, job_id: int) -> JobRecord:
        return self.client.get(job_id)

    def status(self, job_id: int) -> str:
        return self.job(job_id).status.name

    def run_status(self, job_id: int) -> State | str | None:
        """How its run ended: None while it is open, a word when there is none."""
        with self.database.read() as tx:
            run = jobs.run_of(tx, job_id)
        return "no run" if run is None else run.status

    def held(self, job_id: int) -> Claim:
        """The claim that the row speaks of, whether or not it still stands."""
        job = self.job(job_id)
        work = (job.task, job.params, job.options, job.attempt)
        return Claim(job_id, job.fence, job.slot or 0, *work, job.ran, False, job.target_id, job.group_id, job.stage)

    def sql(self, text: str) -> list[Row]:
        with self.database.read() as tx:
            return tx.connection.execute(text).fetchall()  # type: ignore[attr-defined]

    def sql_write(self, text: str) -> None:
        """Damage, and what no verb does."""
        self.database.transact("damage", lambda tx: tx.connection.execute(text))  # type: ignore[attr-defined]

    def events(self, job_id: int) -> list[str]:
        found = self.sql(f"select kind from hw_event where thing = 'job' and thing_id = {job_id} order by version")
        return [kind for (kind,) in found]

    def everything(self, job_id: int | None = None) -> dict[str, list[Row]]:
        """All that is stored, of one job or of all."""
        one = "" if job_id is None else f" where job_id = {job_id}"
        return {
            "job": self.sql("select * from hw_job" + one.replace("job_id", "id") + " order by id"),
            "run": self.sql(f"select * from hw_run{one} order by job_id"),
            "result": self.sql(f"select * from hw_result{one} order by job_id"),
            "report": self.sql(f"select * from hw_report{one} order by job_id"),
            "log": self.sql(f"select * from hw_log{one} order by id"),
            "event": self.sql(
                "select * from hw_event" + ("" if job_id is None else f" where thing_id = {job_id}") + " order by id"
            ),
            "retries": self.sql(f"select * from hw_job where retry_of = {job_id or 0} order by id"),
        }

    def check_versions(self) -> None:
        """Every job's events are numbered from 1 to its own version without a gap."""
        wrong = self.sql(
            "select j.id, j.version, min(e.version), max(e.version), count(*) from hw_job j"
            " left join hw_event e on e.thing_id = j.id and e.thing = 'job' group by j.id, j.version"
            " having count(e.id) <> j.version or min(e.version) <> 1 or max(e.version) <> j.version"
        )
        assert wrong == []


@contextmanager
def raw_connection(url: str) -> Iterator[Any]:
    """A connection past the seam, that commits each statement: for tampering, and for seeing what really is stored."""
    connection: Any
    if url.startswith("postgresql://"):
        connection = psycopg.connect(url, autocommit=True)
    else:
        connection = apsw.Connection(url)
        connection.set_busy_timeout(10_000)
    try:
        yield connection
    finally:
        connection.close()

"""Every verb in every state on both databases, against a table written out by hand from the domain.

A cell is the state the verb leads to, or `-`: refused, and then not one stored byte is different. `+` after a state
says that a new job came into being. Columns in lower case are the same states reached another way: `resumed` is QUEUED
with a run, `interrupting` and `cancelling` are RUNNING with a stop request, `retried` is FAILED with an automatic retry
that waits, `released` is FAILED by a person's word, `expired` is SKIPPED without a run, `stopped` is CANCELLED with a
FAILED run.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway.clock import micros
from headway.errors import NotFound, WrongState
from headway.model.jobs.outcome import (
    Completed,
    Failed,
    FailureKind,
    Interrupted,
    Lost,
    NeverBegan,
    Outcome,
    Skipped,
    StoppedByRequest,
)
from headway.model.jobs.states import State
from headway.store.db import Row
from tests.support.life import BROKEN, FINAL, HOUR, Life

PEOPLE = """
              WAITING   SCHEDULED QUEUED    resumed   RUNNING interrupting cancelling PAUSED    ERROR     COMPLETED FAILED  retried SKIPPED expired CANCELLED stopped
cancel        CANCELLED CANCELLED CANCELLED CANCELLED RUNNING RUNNING      RUNNING    CANCELLED CANCELLED -         -       -       -       -       -         -
interrupt     WAITING   WAITING   WAITING   -         RUNNING RUNNING      -          -         -         -         -       -       -       -       -         -
resume        QUEUED    -         -         -         -       -            -          QUEUED    QUEUED    -         -       -       -       -       -         -
resolve       -         -         -         -         -       -            -          COMPLETED COMPLETED -         -       -       -       -       -         -
release       -         -         -         -         -       -            -          FAILED    FAILED    -         -       -       -       -       -         -
retry         -         -         -         -         -       -            -          FAILED+   FAILED+   -         FAILED+ FAILED  -       -       -         CANCELLED+
edit_params   WAITING   SCHEDULED QUEUED    -         -       -            -          -         -         -         -       -       -       -       -         -
edit_priority WAITING   SCHEDULED QUEUED    QUEUED    -       -            -          -         -         -         -       -       -       -       -         -
edit_start    WAITING   SCHEDULED -         -         -       -            -          -         -         -         -       -       -       -       -         -
start_now     WAITING   QUEUED    QUEUED    -         -       -            -          -         -         -         -       -       -       -       -         -
move          WAITING   SCHEDULED QUEUED    QUEUED    -       -            -          -         -         -         -       -       -       -       -         -
"""  # noqa: E501

WORKERS = """
              WAITING   SCHEDULED QUEUED    resumed   RUNNING   interrupting cancelling PAUSED    ERROR     COMPLETED FAILED  retried SKIPPED expired CANCELLED stopped
claim         -         -         RUNNING   RUNNING   -         -            -          -         -         -         -       -       -       -       -         -
promote       -         QUEUED    -         -         -         -            -          -         -         -         -       -       -       -       -         -
expire        SKIPPED   SKIPPED   SKIPPED   -         -         -            -          -         -         -         -       -       -       -       -         -
completed     -         -         -         -         COMPLETED COMPLETED    COMPLETED  -         -         -         -       -       -       -       -         -
coded         -         -         -         -         COMPLETED COMPLETED    COMPLETED  -         -         -         -       -       -       -       -         -
skipped       -         -         -         -         SKIPPED   SKIPPED      SKIPPED    -         -         -         -       -       -       -       -         -
broken        -         -         -         -         FAILED+   PAUSED       CANCELLED  -         -         -         -       -       -       -       -         -
final         -         -         -         -         FAILED    PAUSED       CANCELLED  -         -         -         -       -       -       -       -         -
bad_params    -         -         -         -         FAILED    PAUSED       CANCELLED  -         -         -         -       -       -       -       -         -
budget        -         -         -         -         FAILED    FAILED       CANCELLED  -         -         -         -       -       -       -       -         -
timeout       -         -         -         -         FAILED+   PAUSED       CANCELLED  -         -         -         -       -       -       -       -         -
stopped       -         -         -         -         FAILED+   PAUSED       CANCELLED  -         -         -         -       -       -       -       -         -
shutdown      -         -         -         -         FAILED+   PAUSED       CANCELLED  -         -         -         -       -       -       -       -         -
never_began   -         -         -         -         FAILED+   PAUSED       CANCELLED  -         -         -         -       -       -       -       -         -
lost          -         -         -         -         FAILED+   PAUSED       CANCELLED  -         -         -         -       -       -       -       -         -
remains       -         -         -         -         ERROR     PAUSED       CANCELLED  -         -         -         -       -       -       -       -         -
"""  # noqa: E501

# On a target: the same for people, and another end for what fails for good or is stopped by a shutdown.
PEOPLE_ON_TARGET = """
              WAITING   SCHEDULED QUEUED    resumed   RUNNING interrupting PAUSED    ERROR     released retried stopped
cancel        CANCELLED CANCELLED CANCELLED CANCELLED RUNNING RUNNING      CANCELLED CANCELLED -        -       -
interrupt     WAITING   WAITING   WAITING   -         RUNNING RUNNING      -         -         -        -       -
resume        QUEUED    -         -         -         -       -            QUEUED    QUEUED    -        -       -
resolve       -         -         -         -         -       -            COMPLETED COMPLETED -        -       -
release       -         -         -         -         -       -            FAILED    FAILED    -        -       -
retry         -         -         -         -         -       -            FAILED+   FAILED+   FAILED+  FAILED  CANCELLED+
edit_priority WAITING   SCHEDULED QUEUED    QUEUED    -       -            -         -         -        -       -
start_now     WAITING   QUEUED    QUEUED    -         -       -            -         -         -        -       -
move          WAITING   SCHEDULED QUEUED    QUEUED    -       -            -         -         -        -       -
"""  # noqa: E501

WORKERS_ON_TARGET = """
              WAITING   SCHEDULED QUEUED    resumed   RUNNING   interrupting cancelling PAUSED    ERROR
claim         -         -         RUNNING   RUNNING   -         -            -          -         -
promote       -         QUEUED    -         -         -         -            -          -         -
expire        SKIPPED   SKIPPED   SKIPPED   -         -         -            -          -         -
completed     -         -         -         -         COMPLETED COMPLETED    COMPLETED  -         -
skipped       -         -         -         -         SKIPPED   SKIPPED      SKIPPED    -         -
broken        -         -         -         -         FAILED+   PAUSED       CANCELLED  -         -
final         -         -         -         -         ERROR     PAUSED       CANCELLED  -         -
bad_params    -         -         -         -         ERROR     PAUSED       CANCELLED  -         -
budget        -         -         -         -         ERROR     ERROR        CANCELLED  -         -
timeout       -         -         -         -         FAILED+   PAUSED       CANCELLED  -         -
stopped       -         -         -         -         PAUSED    PAUSED       CANCELLED  -         -
shutdown      -         -         -         -         PAUSED    PAUSED       CANCELLED  -         -
never_began   -         -         -         -         FAILED+   PAUSED       CANCELLED  -         -
lost          -         -         -         -         FAILED+   PAUSED       CANCELLED  -         -
remains       -         -         -         -         ERROR     PAUSED       CANCELLED  -         -
"""

OUTCOMES: dict[str, Outcome] = {
    "completed": Completed('{"pages":3}'),
    "coded": Completed(exit_code=3),
    "skipped": Skipped("nothing new"),
    "broken": BROKEN,
    "final": FINAL,
    "bad_params": Failed(FailureKind.BAD_PARAMS, "no topic"),
    "budget": Failed(FailureKind.BUDGET, "tokens used up"),
    "timeout": Failed(FailureKind.TIMEOUT, "ran longer than 5s"),
    "stopped": StoppedByRequest(),
    "shutdown": Interrupted(),
    "never_began": NeverBegan("no process could be started for it"),
    "lost": Lost("the worker is gone"),
    "remains": Lost("its processes could not be ended", remains=True),
}
# What a run says when its job has ended; all others are open or never began.
RUNS = {"COMPLETED": "COMPLETED", "FAILED": "FAILED", "CANCELLED": "FAILED", "SKIPPED": "SKIPPED"}
NEVER_RAN = {"WAITING", "SCHEDULED", "QUEUED", "expired", "CANCELLED"}
ENDED = {"FAILED", "released", "retried", "stopped"}
Everything = dict[str, list[Row]]


def cells(table: str) -> list[tuple[str, str, str]]:
    head, *lines = table.strip().splitlines()
    states = head.split()
    rows = [line.split() for line in lines]
    assert all(len(row) == len(states) + 1 for row in rows)
    return [(row[0], state, cell) for row in rows for state, cell in zip(states, row[1:], strict=True)]


def people(life: Life) -> dict[str, Callable[[int], object]]:
    client, now = life.client, life.clock.now()
    return {
        "cancel": client.cancel,
        "interrupt": client.interrupt,
        "resume": client.resume,
        "resolve": lambda job: client.resolve(job, {"by": "hand"}),
        "release": client.release,
        "retry": client.retry,
        "edit_params": lambda job: client.edit(job, params={"n": 2}),
        "edit_priority": lambda job: client.edit(job, priority=7),
        "edit_start": lambda job: client.edit(job, not_before=now + 10 * HOUR),
        "start_now": lambda job: client.edit(job, not_before=now),
        "move": lambda job: client.move(job, to="top"),
    }


def test_the_tables_name_every_state_and_every_outcome() -> None:
    states = {
        "WAITING",
        "SCHEDULED",
        "QUEUED",
        "RUNNING",
        "PAUSED",
        "ERROR",
        "COMPLETED",
        "FAILED",
        "SKIPPED",
        "CANCELLED",
    }
    for table in (PEOPLE, WORKERS):
        assert states <= {state for _, state, _ in cells(table)}
    assert set(OUTCOMES) == {verb for verb, _, _ in cells(WORKERS)} - {"claim", "promote", "expire"}


@pytest.mark.parametrize(("verb", "state", "cell"), cells(PEOPLE))
def test_actions_of_people(shared_life: Life, verb: str, state: str, cell: str) -> None:
    people_do(shared_life, verb, state, cell)


@pytest.mark.parametrize(("verb", "state", "cell"), cells(PEOPLE_ON_TARGET))
def test_actions_of_people_on_a_target(shared_life: Life, verb: str, state: str, cell: str) -> None:
    people_do(shared_life, verb, state, cell, target=f"{verb} {state}")


def people_do(life: Life, verb: str, state: str, cell: str, **fields: str) -> None:
    job_id = life.in_state(state, expires_at=life.clock.now() + HOUR, **fields)
    before = life.everything(job_id)
    if cell == "-":
        others = life.everything()
        with pytest.raises(WrongState) as refusal:
            people(life)[verb](job_id)
        assert refusal.value.facts["status"] == life.status(job_id)
        assert life.everything() == others
    else:
        people(life)[verb](job_id)
        landed(life, job_id, state, cell, before)


@pytest.mark.parametrize(("verb", "state", "cell"), cells(WORKERS))
def test_actions_of_workers(shared_life: Life, verb: str, state: str, cell: str) -> None:
    workers_try(shared_life, verb, state, cell)


@pytest.mark.parametrize(("verb", "state", "cell"), cells(WORKERS_ON_TARGET))
def test_actions_of_workers_on_a_target(shared_life: Life, verb: str, state: str, cell: str) -> None:
    workers_try(shared_life, verb, state, cell, target=f"{verb} {state}")


def workers_try(life: Life, verb: str, state: str, cell: str, **fields: str) -> None:
    job_id = life.in_state(state, expires_at=life.clock.now() + HOUR, **fields)
    before = life.everything(job_id)
    applied = workers_do(life, verb, job_id)
    if cell == "-":
        assert not applied
        after = life.everything(job_id)
        if verb == "promote":  # its retry may have come into the queue
            del before["retries"], after["retries"]
        assert after == before
    else:
        assert applied
        landed(life, job_id, state, cell, before)


def workers_do(life: Life, verb: str, job_id: int) -> bool:
    """Whether the verb said that it touched this job."""
    match verb:
        case "claim":
            return bool(life.take(job_id))  # on a target, once its first job is chosen
        case "promote" | "expire":
            life.clock.time += micros(60) if verb == "promote" else HOUR
            found = life.database.transact(verb, lambda tx: tx.run(verb, actor=life.actor().text()))
            return job_id in {row[0] for row in found}
        case _:
            return life.end(life.held(job_id), OUTCOMES[verb])


def landed(life: Life, job_id: int, state: str, cell: str, before: Everything) -> None:
    """The state of the cell, one event for it, a run that fits, and a new job only where the cell says so."""
    after = life.everything(job_id)
    assert life.status(job_id) == cell.rstrip("+")
    assert len(after["event"]) - len(before["event"]) == (0 if state in ENDED else 1)
    assert len(after["retries"]) - len(before["retries"]) == cell.count("+")
    life.check_versions()
    run = life.run_status(job_id)
    if state in NEVER_RAN and cell != "RUNNING":
        assert run == "no run"
    else:
        assert (run.name if isinstance(run, State) else run) == RUNS.get(cell.rstrip("+"))


@pytest.mark.parametrize("verb", ["cancel", "interrupt", "resume", "retry", "move", "edit_params"])
def test_a_refusal_says_what_is_wrong_in_one_line(shared_life: Life, verb: str) -> None:
    job_id = shared_life.in_state("COMPLETED")
    with pytest.raises(WrongState) as refusal:
        people(shared_life)[verb](job_id)
    assert "\n" not in str(refusal.value)
    if verb == "edit_params":
        assert str(refusal.value) == "Cannot modify params after dispatch"
        assert refusal.value.code == "params_frozen"
    else:
        assert str(refusal.value).startswith(f"job {job_id} is COMPLETED: cannot {verb} it; ")
        assert refusal.value.code == "wrong_state"


def test_a_retry_that_waits_is_brought_forward_instead_of_doubled(shared_life: Life) -> None:
    life = shared_life
    job_id = life.in_state("retried")
    (waiting,) = life.sql(f"select id from hw_job where retry_of = {job_id}")
    assert life.status(waiting[0]) == "SCHEDULED"
    assert life.client.retry(job_id).id == waiting[0]
    assert life.status(waiting[0]) == "QUEUED"
    assert life.client.retry(job_id).id == waiting[0]
    assert life.sql(f"select count(*) from hw_job where retry_of = {job_id}") == [(1,)]


def test_while_a_retry_runs_another_is_refused_and_named(shared_life: Life) -> None:
    life = shared_life
    job_id = life.in_state("retried")
    waiting = life.client.retry(job_id).id
    life.claim(waiting)
    before = life.everything()
    with pytest.raises(WrongState, match=f"job {waiting} is RUNNING") as refusal:
        life.client.retry(job_id)
    assert refusal.value.facts == {"status": "RUNNING", "job_id": waiting}
    assert life.everything() == before


def test_bringing_a_retry_forward_cannot_change_what_was_dispatched(shared_life: Life) -> None:
    life = shared_life
    job_id = life.in_state("retried")
    waiting = life.client.retry(job_id).id
    claim = life.claim(waiting)
    life.client.interrupt(waiting)
    assert life.end(claim, StoppedByRequest())
    life.client.resume(waiting)
    before = life.everything()
    with pytest.raises(WrongState, match=r"^Cannot modify params after dispatch$"):
        life.client.retry(job_id, params={"n": 2})
    assert life.everything() == before


def test_a_retry_brought_forward_to_another_priority_goes_to_its_end(shared_life: Life) -> None:
    life = shared_life
    job_id = life.in_state("retried")
    last = life.enqueue(priority=3)
    forward = life.client.retry(job_id, priority=3)
    assert (forward.priority, forward.status.name) == (3, "QUEUED")
    assert forward.position > life.job(last).position


def test_verbs_of_another_tenant_or_an_unknown_job_find_nothing(shared_life: Life) -> None:
    life = shared_life
    with life.database.transaction("tenant") as tx:
        life.database.execute_script(tx, "insert into hw_tenant (name, created_at) values ('other', 0);")
    job_id = life.in_state("QUEUED")
    stranger = type(life.client)(life.database, life.client.registry, actor=life.client.actor, tenant="other")
    before = life.everything()
    for verb in (stranger.cancel, stranger.interrupt, stranger.resume, stranger.get, stranger.retry):
        with pytest.raises(NotFound, match=f"no job {job_id}"):
            verb(job_id)
    with pytest.raises(NotFound):
        life.client.cancel(10**12)
    assert life.everything() == before

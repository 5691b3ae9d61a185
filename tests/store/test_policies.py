"""Policies, limits and resources in the database: who runs beside whom, drawn as timelines, and what changes while all
runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headway.engine.client import limits
from headway.engine.client.client import Client
from headway.errors import BadInput, NotFound
from headway.model.jobs.job import Claim
from headway.model.jobs.outcome import Completed
from headway.model.queue.policies import Concurrency
from headway.store.queue.lanes import BucketCache
from tests.support.life import ADA, Life


def adopt(life: Life, *, resources: dict[str, int] | None = None, **wishes: Any) -> limits.SettledLimits:
    return limits.settle(life.database, Concurrency(**wishes), resources or {}, actor=ADA, adopt=True)


def ids(taken: list[Claim]) -> list[int]:
    return [claim.job_id for claim in taken]


def finish(life: Life, taken: list[Claim]) -> None:
    assert all(life.end(claim, Completed()) for claim in taken)


def stranger(life: Life) -> Client:
    with life.database.transaction("tenant") as tx:
        life.database.execute_script(tx, "insert into hw_tenant (name, created_at) values ('other', 0);")
    return Client(life.database, life.client.registry, actor=ADA, tenant="other")


# --- the timelines of the execution flow ---

OPTION_A = """
Worker1: [Job1]────────[Job2]────────[Job3]────────
"""

OPTION_B = """
Worker1 (Story):    [S1]────[S2]────[S3]────
Worker2 (Research): [R1]────[R2]────
"""

OPTION_C = """
Ollama:  [J1(ollama)]────[J3(ollama)]────
Remote1: [J2(remote)]────[J5(remote)]────
Remote2: [J4(remote)]────
"""


def timeline(life: Life, names: dict[int, str], rows: dict[str, Callable[[str], bool]], dash: str) -> str:
    """Jobs of equal length, on rows that each take the jobs of one kind, one at a time; a gap would be drawn as one."""
    drawn: dict[str, list[str]] = {row: [] for row in rows}
    steps = 0
    while taken := life.claim_next(9):
        free = dict(rows)
        for name in (names[claim.job_id] for claim in taken):
            row = next(row for row, fits in free.items() if fits(name))
            del free[row]
            drawn[row] += [" "] * (steps - len(drawn[row])) + [f"[{name}]{dash}"]
        finish(life, taken)
        steps += 1
    width = max(map(len, rows)) + 2
    return "\n" + "".join(f"{f'{row}:':<{width}}{''.join(bars)}\n" for row, bars in drawn.items())


def test_option_a_one_job_at_a_time(life: Life) -> None:
    adopt(life, policy="global", limit=1)
    names = {life.enqueue(): f"Job{n}" for n in (1, 2, 3)}
    assert timeline(life, names, {"Worker1": lambda _: True}, "─" * 8) == OPTION_A


def test_option_b_one_of_each_task(life: Life) -> None:
    adopt(life, policy="per_task", limits=(("research", 1), ("story", 1)))
    order = ["S1", "S2", "R1", "S3", "R2"]
    names = {life.enqueue(task="story" if name[0] == "S" else "research"): name for name in order}
    rows = {"Worker1 (Story)": lambda name: name[0] == "S", "Worker2 (Research)": lambda name: name[0] == "R"}
    assert timeline(life, names, rows, "─" * 4) == OPTION_B


def test_option_c_by_resources(life: Life) -> None:
    adopt(life, policy="per_resource", resources={"ollama": 1, "remote": 2})
    needs = {"J1": "ollama", "J2": "remote", "J3": "ollama", "J4": "remote", "J5": "remote"}
    names = {life.enqueue(resources=(need,)): f"{name}({need})" for name, need in needs.items()}
    rows = {
        "Ollama": lambda name: "ollama" in name,
        "Remote1": lambda name: "remote" in name,
        "Remote2": lambda name: "remote" in name,
    }
    assert timeline(life, names, rows, "─" * 4) == OPTION_C


# --- lanes ---


def test_resources_are_taken_all_or_nothing_under_every_policy(life: Life) -> None:
    adopt(life, policy="per_task", limit=None, resources={"ollama": 1, "remote": 2})
    first = life.enqueue(resources=("ollama", "remote"))
    both = life.enqueue(resources=("ollama", "remote"))
    one, other = life.enqueue(resources=("remote",)), life.enqueue(resources=("remote",))
    taken = life.claim_next(9)
    assert ids(taken) == [first, one]  # `both` waits for ollama and holds nothing of remote
    finish(life, taken[1:])
    taken = [*taken[:1], *life.claim_next(9)]
    assert ids(taken) == [first, other]
    finish(life, taken[:1])
    assert ids(life.claim_next(9)) == [both]


def test_under_per_resource_a_job_without_resources_is_in_the_lane_of_all(life: Life) -> None:
    adopt(life, policy="per_resource", limit=1, resources={"ollama": 1})
    plain, again = life.enqueue(), life.enqueue()
    named = life.enqueue(resources=("ollama",))
    assert ids(life.claim_next(9)) == [plain, named]
    assert life.status(again) == "QUEUED"


def test_lanes_of_tasks_belong_to_a_tenant_and_the_lane_of_all_to_everybody(life: Life) -> None:
    other = stranger(life)
    adopt(life, policy="per_task", limit=1)
    ours, theirs = life.enqueue(task="story"), other.enqueue(life.new(task="story"))[0]
    taken = life.claim_next(9)
    assert ids(taken) == [ours, theirs]
    finish(life, taken)
    adopt(life, policy="global", limit=1)
    ours, theirs = life.enqueue(task="story"), other.enqueue(life.new(task="story"))[0]
    taken = life.claim_next(9)
    assert ids(taken) == [ours]
    finish(life, taken)
    assert ids(life.claim_next(9)) == [theirs]


def test_a_resource_has_one_capacity_for_all_tenants(life: Life) -> None:
    other = stranger(life)
    adopt(life, policy="per_resource", resources={"ollama": 2})
    made = [life.enqueue(resources=("ollama",)), other.enqueue(life.new(resources=("ollama",)))[0]]
    life.enqueue(resources=("ollama",))
    assert ids(life.claim_next(9)) == made


def test_jobs_on_targets_take_the_lanes_of_the_policy_only_if_it_is_said(life: Life) -> None:
    plain = life.enqueue()
    desk, lab = life.enqueue(target="desk"), life.enqueue(target="lab")
    taken = life.claim_next(9)
    assert sorted(ids(taken)) == sorted([plain, desk, lab])
    finish(life, taken)
    adopt(life, targets="global", limit=2)
    made = [life.enqueue(), life.enqueue(target="desk"), life.enqueue(target="lab")]
    assert ids(life.claim_next(9)) == made[:2]


def test_a_policy_of_a_users_own(life: Life) -> None:
    adopt(life, policy="tests.support.own_policies.ByLetter", limit=1)
    made = [life.enqueue(task=task) for task in ("ash", "alder", "birch")]
    assert ids(life.claim_next(9)) == [made[0], made[2]]


def test_a_worker_that_knows_some_tasks_passes_over_the_others(life: Life) -> None:
    adopt(life, limit=None)
    made = [life.enqueue(task=task, priority=priority) for task, priority in (("ash", 9), ("birch", 0), ("ash", 0))]
    assert ids(life.claim_next(9, knows=lambda task: task == "birch")) == [made[1]]
    assert ids(life.claim_next(9)) == [made[0], made[2]]


def test_a_lowered_limit_stops_nothing_that_runs(life: Life) -> None:
    adopt(life, limit=3)
    made = [life.enqueue() for _ in range(5)]
    taken = life.claim_next(9)
    limits.change(life.database, "global", 1, tenant_id=1, actor=ADA)
    for n in (0, 1):
        finish(life, taken[n : n + 1])
        assert life.claim_next(9) == []
    finish(life, taken[2:])
    assert ids(life.claim_next(9)) == made[3:4]


def test_no_limit_lets_all_run(life: Life) -> None:
    adopt(life, limit=None)
    made = [life.enqueue() for _ in range(30)]
    assert ids(life.claim_next(50)) == made


# --- changes ---


def test_another_policy_gives_all_unclaimed_jobs_their_new_lanes_and_running_ones_keep_theirs(life: Life) -> None:
    made = [life.enqueue(task=task) for task in ("ash", "ash", "birch", "birch")]
    held, later = life.enqueue(task="ash", hold=True), life.enqueue(task="ash", delay=60_000_000)
    taken = life.claim_next(9)
    assert ids(taken) == made[:1]
    assert adopt(life, policy="per_task", limit=1).relaned == 5
    taken += life.claim_next(9)
    assert ids(taken) == [made[0], made[1], made[2]]  # the first is in the lane of all, where it was claimed
    assert [life.events(job)[-1] for job in (held, later, made[3])] == ["job.relaned"] * 3
    finish(life, taken)
    assert ids(life.claim_next(9)) == made[3:]
    life.check_versions()


@pytest.mark.parametrize("way", ["resumed", "retried", "on a target", "later"])
def test_a_job_that_comes_back_from_an_older_policy_gets_the_lanes_of_now(life: Life, way: str) -> None:
    """Its lanes are those of the policy under which it was claimed, until it is queued again."""
    adopt(life, limit=None)
    wishes = {"target": "desk"} if way == "on a target" else {}
    jobs = [life.in_state("retried" if way == "retried" else "PAUSED", **wishes)]
    if way == "on a target":
        jobs += [life.enqueue(target="lab"), life.enqueue(target="shed")]
    elif way == "later":
        jobs += [life.enqueue(delay=5_000_000) for _ in range(2)]
    adopt(life, policy="per_task", limit=1, targets="global")
    life.client.retry(jobs[0]) if way == "retried" else life.client.resume(jobs[0])
    life.clock.advance(60)
    life.enqueue()
    assert len(life.claim_next(9)) == 1


def test_many_jobs_of_an_older_policy_never_run_beside_the_limits_of_the_new_one(life: Life) -> None:
    """More than one claim can move: a process that still knows the old policy makes them after the change."""
    adopt(life, policy="tests.support.own_policies.NoLanes")
    life.client.lanes.refresh()
    adopt(life, policy="global", limit=2)
    made = [job_id for job_id, _ in life.client.enqueue_alike(life.new(), ["{}"] * 1_050)]
    lanes = BucketCache(life.database)
    taken = life.claim_next(50, lanes=lanes)
    assert ids(taken) == made[:2]
    assert life.claim_next(50, lanes=lanes) == []
    for n in range(2, 8, 2):
        finish(life, taken)
        taken = life.claim_next(50, lanes=lanes)
        assert ids(taken) == made[n : n + 2]
    life.check_versions()


def test_two_policies_back_and_forth_leave_no_job_behind(life: Life) -> None:
    lanes = BucketCache(life.database)
    made = [life.enqueue(task=task) for task in ("ash", "birch", "ash", "birch")]
    taken: list[Claim] = []
    for policy in ("per_task", "global", "per_task", "tests.support.own_policies.ByLetter", "global"):
        adopt(life, policy=policy, limit=1)
        made.append(life.enqueue(task="ash"))
        now = life.claim_next(1, lanes=lanes)
        finish(life, now)
        taken += now
    while now := life.claim_next(1, lanes=lanes):
        finish(life, now)
        taken += now
    assert ids(taken) == made


def test_a_new_lane_has_the_limit_that_holds_when_it_comes_into_being(life: Life) -> None:
    """Not the one that the process of its first job read some seconds ago."""
    adopt(life, policy="per_task", limit=1)
    life.client.lanes.refresh()
    adopt(life, policy="per_task", limit=3)
    made = [life.enqueue() for _ in range(4)]
    assert ids(life.claim_next(9)) == made[:3]


@pytest.mark.parametrize(
    ("name", "capacity", "error"),
    [
        ("global", 0, BadInput),
        ("global", -1, BadInput),
        ("global", 10**9, BadInput),
        ("ollama", None, BadInput),
        ("nothing", 1, NotFound),
    ],
)
def test_a_limit_that_cannot_be_is_refused_and_nothing_changes(
    life: Life, name: str, capacity: int | None, error: type[Exception]
) -> None:
    adopt(life, resources={"ollama": 1})
    before = life.sql("select * from hw_lane order by id"), life.sql("select count(*) from hw_event")
    with pytest.raises(error):
        limits.change(life.database, name, capacity, tenant_id=1, actor=ADA)
    assert (life.sql("select * from hw_lane order by id"), life.sql("select count(*) from hw_event")) == before


def test_an_unknown_resource_is_refused_and_the_nearest_one_named(life: Life) -> None:
    adopt(life, resources={"ollama": 1})
    with pytest.raises(BadInput, match="did you mean ollama"):
        life.enqueue(resources=("olama",))
    assert life.sql("select count(*) from hw_job") == [(0,)]


def test_a_limit_while_everything_runs_holds_from_the_next_claim_on_and_is_in_the_history(life: Life) -> None:
    adopt(life, policy="per_task", limit=1)
    made = [life.enqueue(task="ash") for _ in range(3)]
    assert ids(life.claim_next(9)) == made[:1]
    limits.change(life.database, "ash", 2, tenant_id=1, actor=ADA)  # a lane may be named by its task
    assert ids(life.claim_next(9)) == made[1:2]
    found = life.sql("select kind, data from hw_event where thing = 'lane' and data like '%task:ash%' order by id")
    assert [kind for kind, _ in found] == ["lane.created", "lane.changed"]

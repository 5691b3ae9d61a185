"""What the next claim takes, in plain Python from the words of the domain: it knows people's wishes (policy, limits,
pauses, reservations) as they said them and the jobs as they stand, and nothing of buckets, gates or touched targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from headway.model.jobs.states import State

Lane = tuple[str, int, str]  # kind, owner, name
GLOBAL: Lane = ("policy", 0, "global")
QUEUED, HELD = State.QUEUED, (State.RUNNING, State.PAUSED, State.ERROR)


@dataclass(frozen=True, slots=True)
class Work:
    """A job as its row says, with the resources it was made with."""

    id: int
    tenant_id: int
    status: State
    gate: int
    priority: int
    position: int
    created_at: int
    fence: int
    target_id: int | None
    not_before: int | None
    expires_at: int | None
    queued_at: int | None
    worker_id: int | None
    task: str
    stage: tuple[int, int] | None = None  # with its group
    resources: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[int, int, int, int]:
        return (-self.priority, self.position, self.created_at, self.id)

    @property
    def holds(self) -> bool:
        """Whether it holds its target: it runs, a person has to decide, or it was resumed."""
        return self.status in HELD or (self.status is QUEUED and self.fence > 0)


Takes = Callable[[Work], bool]  # whether a worker takes a job, as far as its tasks and its tenants go


@dataclass(slots=True)
class Promise:
    """A reservation. `call`: of which kind of work (tenant, task, resources), None for what is no task."""

    id: int
    lanes: tuple[Lane, ...]
    target_id: int | None
    expires_at: int | None
    granted: bool = False
    call: tuple[int, str, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """A living worker: what it knows, and how many jobs more it could run."""

    id: int
    tasks: frozenset[str]
    slots: int
    tenants: frozenset[int] | None = None  # of whose jobs it takes any; None: of everybody's

    def takes(self, job: Work) -> bool:
        return job.task in self.tasks and (self.tenants is None or job.tenant_id in self.tenants)


@dataclass(slots=True)
class Wishes:
    """Policy and limits as somebody last said them. `limits` of single lanes, by the name of the lane or its task."""

    policy: str = "global"
    targets: str = "own"
    limit: int | None = 1
    limits: dict[str, int] = field(default_factory=dict)
    aging: int | None = None


@dataclass(slots=True)
class Expected:
    """What a claim does: which reservations end and which are granted, and the jobs it takes, in order."""

    expired: list[int] = field(default_factory=list)
    granted: list[int] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    awaited: set[Lane | int] = field(default_factory=set)
    turns: list[int] = field(default_factory=list)  # the tenants that had one, in order


class Oracle:
    """Walks all queued jobs each time. `burst`: how many direct calls in a row before a job goes first."""

    def __init__(self, *, burst: int) -> None:
        self.burst = burst
        self.wishes = Wishes()
        self.changed: dict[Lane, int | None] = {}
        self.paused: dict[int, int | None] = {}  # by tenant, 0 for everybody: until when
        self.paused_targets: set[int] = set()
        self.promises: list[Promise] = []
        # Direct calls since the last job, one after the other while a job waited; by lane or target.
        self.in_a_row: dict[Lane | int, int] = {}
        self.lanes_held: dict[int, tuple[Lane, ...]] = {}  # by running job: the lanes it was claimed on
        self.inactive: set[int] = set()
        self.most: dict[int, int] = {}  # how many jobs tenants may run
        self.turns: dict[int, int] = {}  # the number of each tenant's last turn

    # --- lanes ---

    def lanes_of(self, tenant_id: int, task: str, resources: Sequence[str], *, on_target: bool) -> tuple[Lane, ...]:
        policy = self._policy_lanes(tenant_id, task, resources)
        own = () if on_target and self.wishes.targets == "own" else policy
        return (*own, *(("resource", 0, name) for name in sorted(resources)))

    def _policy_lanes(self, tenant_id: int, task: str, resources: Sequence[str]) -> tuple[Lane, ...]:
        match self.wishes.policy.replace(":", ".").rpartition(".")[2]:
            case "global":
                return (GLOBAL,)
            case "per_task":
                return (("policy", tenant_id, f"task:{task}"),)
            case "per_resource":
                return () if resources else (GLOBAL,)
            case "NoLanes":
                return ()
            case "ByLetter" | "by_letter":
                letter: Lane = ("policy", tenant_id, f"letter:{task[0]}")
                return (letter, GLOBAL) if resources else (letter,)
        raise AssertionError(self.wishes.policy)

    def adopt(self, wishes: Wishes, capacities: dict[str, int]) -> None:
        """Other settings. Direct calls that wait get the lanes of the new policy; one that was let in keeps its own.
        Who reserves neither a task's lanes nor a resource nor a target gets the lane that all tasks share."""
        others = wishes != self.wishes
        self.wishes = wishes
        self.changed = {("resource", 0, name): capacity for name, capacity in capacities.items()}
        for promise in self.promises:
            if promise.call is not None and not promise.granted:
                promise.lanes = self.lanes_of(*promise.call, on_target=promise.target_id is not None)
            elif others and not promise.granted and self._is_for_any_slot(promise):
                promise.lanes = (GLOBAL,) if wishes.policy in ("global", "per_resource") else ()

    @staticmethod
    def _is_for_any_slot(promise: Promise) -> bool:
        resources = [lane for lane in promise.lanes if lane[0] == "resource"]
        return promise.call is None and promise.target_id is None and not resources

    def needs(self, job: Work) -> tuple[Lane, ...]:
        return self.lanes_of(job.tenant_id, job.task, job.resources, on_target=job.target_id is not None)

    def capacity(self, lane: Lane) -> int | None:
        if lane in self.changed:
            return self.changed[lane]
        assert lane[0] == "policy", f"nobody defined {lane}"
        limits = self.wishes.limits
        return limits.get(lane[2], limits.get(lane[2].removeprefix("task:"), self.wishes.limit))

    # --- the claim ---

    def expect(self, rows: Iterable[Work], now: int, workers: Sequence[Served], takes: Takes, count: int) -> Expected:
        """What a claim of `count` jobs takes now, and what it gives to reservations first."""
        jobs = list(due(rows, now))
        found = Expected(expired=[p.id for p in self.promises if p.expires_at is not None and p.expires_at <= now])
        active = [replace(p) for p in self.promises if p.id not in found.expired]
        tired = {thing for thing, times in self.in_a_row.items() if times >= self.burst}
        held = {job.target_id for job in jobs if job.target_id and job.holds and job.status is QUEUED}
        parked = [p.id for p in active if p.target_id in held]  # they wait for a resumed job, and keep nobody back
        first = self._go_first(jobs, now, [p for p in active if p.id not in parked], tired, workers)
        found.awaited = self._awaited(jobs, now)
        found.granted = self._grants(jobs, active, first)
        closing = [p for p in active if p.id not in parked]
        taken = list(self._walk(jobs, now, closing, tired, takes, count))
        found.jobs = [job.id for job in taken]
        found.turns = [job.tenant_id for job in taken] if len(self._with_work(jobs, now)) > 1 else []
        return found

    def _go_first(
        self,
        jobs: Sequence[Work],
        now: int,
        active: Sequence[Promise],
        tired: set[Lane | int],
        workers: Sequence[Served],
    ) -> set[Lane | int]:
        """The tired lanes and targets that a job gets now, if it goes before the direct calls."""
        if not tired or all(p.granted for p in active):
            return set()
        running = [job.worker_id for job in jobs if job.status is State.RUNNING]
        free = {worker: worker.slots - running.count(worker.id) for worker in workers}
        able = [worker for worker, slots in free.items() if slots > 0]
        slots = sum(max(0, slots) for slots in free.values())
        taken = list(self._walk(jobs, now, active, tired, lambda job: any(worker.takes(job) for worker in able), slots))
        lanes: set[Lane | int] = {lane for job in taken for lane in self.needs(job)}
        return (lanes | {job.target_id for job in taken if job.target_id is not None}) & tired

    def _awaited(self, jobs: Sequence[Work], now: int) -> set[Lane | int]:
        """The lanes and targets for which a job waits, so that direct calls there keep it waiting."""
        found: set[Lane | int] = set()
        for job in jobs:
            free = job.target_id is None or (
                job.target_id not in self.paused_targets and head(jobs, job.target_id) == job
            )
            if job.status is QUEUED and free and not self._is_paused(job.tenant_id, now):
                found.update(_things(self.needs(job), job.target_id))
        return found

    def _grants(self, jobs: Sequence[Work], active: Sequence[Promise], first: set[Lane | int]) -> list[int]:
        """In order, all lanes at once, none past an earlier one that waits for the same."""
        granted: list[int] = []
        shut: set[Lane | int] = {*first, *self.paused_targets, *(j.target_id for j in jobs if j.target_id and j.holds)}
        shut |= {p.target_id for p in active if p.granted and p.target_id is not None}
        for promise in active:
            if promise.granted:
                continue
            room = all(self._room(lane, jobs, active, ()) > 0 and lane not in shut for lane in promise.lanes)
            if room and promise.target_id not in shut:
                promise.granted = True
                granted.append(promise.id)
            else:
                shut.update(promise.lanes)
            if promise.target_id is not None:
                shut.add(promise.target_id)
        return granted

    def _inside(
        self, lane: Lane, jobs: Sequence[Work], active: Sequence[Promise], taken: Sequence[Work]
    ) -> set[tuple[str, object]]:
        """What takes a place: a job, all the jobs of a stage in a lane of the policy, a granted reservation."""
        runs = [job for job in jobs if job.status is State.RUNNING and lane in self.lanes_held[job.id]]
        takes = [job for job in taken if lane in self.needs(job)]
        found: set[tuple[str, object]] = {("promise", p.id) for p in active if p.granted and lane in p.lanes}
        for job in (*runs, *takes):
            found.add(("stage", job.stage) if job.stage and lane[0] == "policy" else ("job", job.id))
        return found

    def _room(self, lane: Lane, jobs: Sequence[Work], active: Sequence[Promise], taken: Sequence[Work]) -> float:
        limit = self.capacity(lane)
        return float("inf") if limit is None else limit - len(self._inside(lane, jobs, active, taken))

    def _with_work(self, jobs: Sequence[Work], now: int) -> set[int]:
        """The tenants that have a job which may start as far as it, its target and its tenant go."""
        bits = self.gates(jobs)
        return {job.tenant_id for job in jobs if bits[job.id] and not self._is_paused(job.tenant_id, now)}

    def _walk(
        self,
        jobs: Sequence[Work],
        now: int,
        active: Sequence[Promise],
        tired: set[Lane | int],
        takes: Takes,
        count: int,
    ) -> Iterator[Work]:
        """Asks one tenant after the other for its next job, who had its last turn longest ago first, until one has
        one. Who has none, and waits for lanes that stages fill, bars them: for everybody, unless another tenant's stage
        came in with this claim; then for itself."""
        with_work = self._with_work(jobs, now)
        together = len(with_work) < 2
        turns = dict(self.turns)
        walks = {
            tenant_id: _Walk(self, tenant_id, jobs, now, active, tired, takes)
            for tenant_id in {job.tenant_id for job in jobs if job.status is QUEUED}
        }
        taken: list[Work] = []
        shut: set[Lane] = set()
        came: dict[Lane, set[int]] = {}
        while len(taken) < count:
            chosen: Work | None = None
            for tenant_id in sorted(walks, key=lambda one: (turns.get(one, 0), one)):
                chosen = walks[tenant_id].next(taken, shut, {} if together else came)
                if chosen is not None:
                    break
            if chosen is None:
                return
            for lane in self.needs(chosen):
                inside = self._inside(lane, jobs, active, taken)
                if chosen.stage and lane[0] == "policy" and ("stage", chosen.stage) not in inside:
                    came.setdefault(lane, set()).add(chosen.tenant_id)
            taken.append(chosen)
            turns[chosen.tenant_id] = max(turns.values(), default=0) + 1
            yield chosen

    def _may_run_more(self, tenant_id: int, jobs: Sequence[Work], taken: Sequence[Work]) -> bool:
        runs = [job for job in jobs if job.status is State.RUNNING and job.tenant_id == tenant_id]
        takes = [job for job in taken if job.tenant_id == tenant_id]
        return len(runs) + len(takes) < self.most.get(tenant_id, 10**9)

    def _goes_before(self, passed: Work, best: Work, now: int) -> bool:
        """In one line, whoever was passed over stood before."""
        if self.wishes.aging is None or passed.priority == best.priority:
            return True
        return (self._aged(passed, now), passed.priority) > (self._aged(best, now), best.priority)

    def _best(self, firsts: Sequence[Work], now: int) -> Work:
        if self.wishes.aging is None:
            return min(firsts, key=lambda job: job.place)
        return max(firsts, key=lambda job: (self._aged(job, now), job.priority))

    def _aged(self, job: Work, now: int) -> int:
        assert self.wishes.aging is not None
        assert job.queued_at is not None
        return min(100, job.priority + (now - job.queued_at) // self.wishes.aging)

    def _in_its_way(
        self,
        job: Work,
        jobs: Sequence[Work],
        now: int,
        active: Sequence[Promise],
        tired: set[Lane | int],
        taken: Sequence[Work],
        shut: set[Lane],
    ) -> set[Lane] | None:
        """The full lanes that are all that keeps a job from running, which stages fill and nobody bars; None if there
        is more: somebody paused it, another is first on its target, a lane is reserved or full of others."""
        if self._is_paused(job.tenant_id, now):
            return None
        if job.target_id is not None and not self._target_open(job, jobs, active, tired, taken):
            return None
        needs = self.needs(job)
        if not all(self._lane_open(lane, active, tired, taken) for lane in needs):
            return None
        full = {lane for lane in needs if self._room(lane, jobs, active, taken) <= 0}
        return full if all(self._stages_fill(lane, jobs, active, taken) for lane in full) and not full & shut else None

    def _stages_fill(self, lane: Lane, jobs: Sequence[Work], active: Sequence[Promise], taken: Sequence[Work]) -> bool:
        reserved = any(lane in promise.lanes for promise in active)
        inside = self._inside(lane, jobs, active, taken)
        return lane[0] == "policy" and not reserved and any(kind == "stage" for kind, _ in inside)

    def _is_paused(self, tenant_id: int, now: int) -> bool:
        if tenant_id in self.inactive:
            return True
        return any(who in self.paused and _later(self.paused[who], now) for who in (0, tenant_id))

    def _lane_open(self, lane: Lane, active: Sequence[Promise], tired: set[Lane | int], taken: Sequence[Work]) -> bool:
        """Not reserved; a tired lane lets one job go first."""
        if not any(lane in promise.lanes for promise in active):
            return True
        return lane in tired and not any(lane in self.needs(job) for job in taken)

    def _target_open(
        self, job: Work, jobs: Sequence[Work], active: Sequence[Promise], tired: set[Lane | int], taken: Sequence[Work]
    ) -> bool:
        target_id = job.target_id
        assert target_id is not None
        promises = [p for p in active if p.target_id == target_id]
        reserved = promises and (any(p.granted for p in promises) or target_id not in tired)
        if reserved or target_id in self.paused_targets or any(other.target_id == target_id for other in taken):
            return False
        return head(jobs, target_id) == job

    # --- afterwards ---

    def happened(self, expected: Expected, rows: Iterable[Work]) -> None:
        """Remembers what a claim did."""
        for tenant_id in expected.turns:
            self.turns[tenant_id] = max(self.turns.values(), default=0) + 1
        self.promises = [p for p in self.promises if p.id not in expected.expired]
        for promise in self.promises:
            if promise.id in expected.granted:
                promise.granted = True
                for thing in _things(promise.lanes, promise.target_id):
                    self.in_a_row[thing] = self.in_a_row.get(thing, 0) + 1 if thing in expected.awaited else 0
        for job in rows:
            if job.id in expected.jobs:
                self.lanes_held[job.id] = self.needs(job)
                for thing in _things(self.needs(job), job.target_id):
                    self.in_a_row.pop(thing, None)

    def gates(self, rows: Sequence[Work]) -> dict[int, int]:
        """The gate bit of every job by its definition: ready as far as the job itself and its target go."""
        bits: dict[int, int] = {}
        for job in rows:
            first = job.target_id is None or (
                job.target_id not in self.paused_targets and head(rows, job.target_id) == job
            )
            bits[job.id] = int(job.status is QUEUED and first)
        return bits


class _Walk:
    """Goes through the queue of one tenant in order; with aging, through each priority. Who could run but for lanes
    that stages fill is passed over, and nobody behind it joins the stages there."""

    def __init__(
        self,
        oracle: Oracle,
        tenant_id: int,
        jobs: Sequence[Work],
        now: int,
        active: Sequence[Promise],
        tired: set[Lane | int],
        takes: Takes,
    ) -> None:
        self.oracle, self.tenant_id, self.jobs, self.now = oracle, tenant_id, jobs, now
        self.active, self.tired, self.takes = active, tired, takes
        own = [job for job in jobs if job.status is QUEUED and job.tenant_id == tenant_id]
        self.lines: dict[int, list[Work]] = {}
        for job in sorted(own, key=lambda job: job.place):
            self.lines.setdefault(0 if oracle.wishes.aging is None else job.priority, []).append(job)
        self.passed: dict[int, list[tuple[Work, set[Lane]]]] = {line: [] for line in self.lines}
        self.barred: set[Lane] = set()

    def next(self, taken: Sequence[Work], shut: set[Lane], came: dict[Lane, set[int]]) -> Work | None:
        if not self.oracle._may_run_more(self.tenant_id, self.jobs, taken):
            return None
        while True:
            firsts = [job for line in self.lines if (job := self._first(line, taken, shut)) is not None]
            best = self.oracle._best(firsts, self.now) if firsts else None
            waits = [
                lanes
                for one, lanes in (each for line in self.passed.values() for each in line)
                if best is None or self.oracle._goes_before(one, best, self.now)
            ]
            ahead = set().union(*waits) - shut - self.barred
            own = {lane for lane in ahead if came.get(lane, set()) - {self.tenant_id}}
            self.barred |= own
            shut |= ahead - own
            if best is None or not ahead:
                return best

    def _first(self, line: int, taken: Sequence[Work], shut: set[Lane]) -> Work | None:
        """The first of a line that may run; who has to wait for a lane of stages is passed over."""
        for job in self.lines[line]:
            if job in taken or job in [one for one, _ in self.passed[line]]:
                continue
            barriers = (shut | self.barred).union(*(lanes for _, lanes in self.passed[line]))
            full = self.oracle._in_its_way(job, self.jobs, self.now, self.active, self.tired, taken, barriers)
            if full is None:
                continue
            inside = (self.oracle._inside(lane, self.jobs, self.active, taken) for lane in full)
            if not all(("stage", job.stage) in each for each in inside):
                self.passed[line].append((job, full))
            elif self.takes(job):
                return job
        return None


def head(jobs: Iterable[Work], target_id: int) -> Work | None:
    """The one job of a target that may be claimed: the first in its queue, or the one that was resumed."""
    here = [job for job in jobs if job.target_id == target_id]
    holder = next((job for job in here if job.holds), None)
    if holder is not None:
        return holder if holder.status is QUEUED else None
    return min((job for job in here if job.status is QUEUED), key=lambda job: job.place, default=None)


def due(rows: Iterable[Work], now: int) -> Iterator[Work]:
    """The jobs as they are once everything that is due has happened."""
    for job in rows:
        if job.status is State.SCHEDULED and job.not_before is not None and job.not_before <= now:
            job = replace(job, status=QUEUED, queued_at=now)
        if job.status <= QUEUED and job.fence == 0 and job.expires_at is not None and job.expires_at <= now:
            job = replace(job, status=State.SKIPPED)
        yield job


def _things(lanes: Sequence[Lane], target_id: int | None) -> list[Lane | int]:
    return [*lanes, *([] if target_id is None else [target_id])]


def _later(until: int | None, now: int) -> bool:
    return until is None or until > now

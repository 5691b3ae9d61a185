"""Checks of what is recorded: workers, recovery, tasks, queue, held work, schedules, webhooks. Of all tenants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headway.clock import micros
from headway.engine import processes
from headway.engine.client import KNOWN_FOR
from headway.engine.health import LATE_TICK
from headway.engine.limits import differences, lives, living
from headway.errors import BadInput
from headway.model import hook_words
from headway.model.diagnosis import Answer, away, broken, look, ok, skipped
from headway.model.estimate import span
from headway.model.policies import Concurrency
from headway.model.schedule import Schedule
from headway.model.states import State
from headway.model.webhooks import Endpoint
from headway.model.workers import standing
from headway.store import figures, workers_reading
from headway.store.db import Tx
from headway.store.migrate import versions
from headway.store.workers import worker_name
from headway.store.workers_reading import WorkerView

NAMED = 3
LOOKED_AT = 1_000
START = "start a Headway process that reaches the database: each of them recovers"


def some(names: Sequence[str], most: int = NAMED) -> str:
    """The first of them, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def not_ours(tx: Tx) -> Answer | None:
    """None if it is; otherwise why nothing more can be asked."""
    ((found,),) = tx.run(f"schema_found_{tx.database.dialect}")
    if found:
        return None
    return away("it is not a database of Headway yet", "`headway up` or `headway db migrate` makes it one")


def schema(tx: Tx) -> Answer:
    if (foreign := not_ours(tx)) is not None:
        return foreign
    ((found,),) = tx.run("schema_version")
    known = versions()[-1]
    if found > known:
        text = f"the database has schema {found}, this Headway knows up to {known}"
        return broken(text, "install the newer Headway that made it")
    if found < known:
        return broken(f"the database has schema {found}, this Headway needs {known}", "run `headway db migrate`")
    return ok(f"schema {found}, {figures.size(tx) / 1e6:.1f} MB")


# --- workers ------------------------------------------------------------------------------------------------------


def _word(one: WorkerView) -> str:
    """How a worker stands; one of this machine that a signal has stopped is there and does nothing."""
    word = standing(one.state, left=False, has_lease=one.has_lease, process=one.has_lease and lives(one)).word
    here = (one.host, one.boot) == (processes.host(), processes.boot_id())
    return "halted" if word == "live" and here and processes.halted(one.pid) else word


_TODO = {
    "halted": "continue it with `kill -CONT PID`, or end it",
    "stuck": "see what it runs with `headway workers ls`; end its process if that never stops",
    "silent": "see whether its host is up and reaches the database; start another worker if it does not come back",
    "dead": "start it again: what it ran is recovered without you",
}


def workers(tx: Tx) -> Answer:
    found = [(one, _word(one)) for one in workers_reading.workers(tx, within=0.0)]
    at_work = [one for one, word in found if word in ("live", "draining")]
    slots = sum(one.slots for one in at_work)
    detail = f"{len(at_work)} at work with {slots} slots" if at_work else "no worker is at work"
    waiting = not at_work and bool(tx.run("filled_buckets"))
    detail += ", and jobs wait" if waiting else ""
    for word, todo in _TODO.items():
        if bad := [f"{worker_name(one.id)[:8]} on {one.host} pid {one.pid}" for one, is_so in found if is_so == word]:
            judge = look if at_work else broken
            return judge(f"{detail}; {word}: {some(bad)}", todo)
    if not at_work:
        judge = broken if waiting else look
        return judge(detail, "start one with `headway up`, or `headway work`")
    leaving = sum(one.state == "draining" for one in at_work)
    return ok(f"{detail}{f', {leaving} of them ending' if leaving else ''}")


def recovery(tx: Tx, *, interval: float) -> Answer:
    """Every process recovers what others left, once it has watched a silent worker for a lease."""
    late: list[str] = []
    left = 0
    for one in workers_reading.workers(tx, within=0.0):
        lease = max(0, one.lease_until - one.beat_at)
        if one.now - one.lease_until > lease + micros(2 * interval + LATE_TICK):
            late.append(f"worker {worker_name(one.id)[:8]} on {one.host} (silent for {span(one.now - one.beat_at)})")
        elif not lives(one):
            left += len(one.running)
    jobs = [f"job {job_id}" for job_id, *_ in tx.run("orphans")]
    if late or jobs:
        text = f"nobody has recovered {some([*late, *jobs])}"
        return broken(text, START)
    if left:
        text = f"{left} job{' waits' if left == 1 else 's wait'} for the next recovery"
        return ok(text) if living(tx) else look(text, START)
    return ok("nothing is left to recover")


def one_machine(tx: Tx) -> Answer:
    """Whether several machines work on one SQLite file. Containers have names of their own and share a kernel."""
    alive = [one for one in workers_reading.workers(tx, within=0.0) if one.has_lease]
    machines = {one.boot.partition("/")[0]: one.host for one in alive}
    if len(set(machines.values())) > 1:
        text = f"workers of several machines use this file: {some(sorted(set(machines.values())))}"
        return broken(text, "stop all but one of them, run `headway db check`, and use PostgreSQL for several machines")
    return ok("all workers are on one machine")


def tasks(tx: Tx) -> Answer:
    """Jobs that are ready, of a task that no worker has."""
    served = {task for one in living(tx) for task in one.tasks}
    if not served:
        return skipped("no worker is at work")
    filled = {number for (number,) in tx.run("filled_buckets")}
    waiting = {task for number, _, task, *_ in tx.run("all_buckets") if number in filled}
    if missing := sorted(waiting - served):
        text = f"jobs wait for {some(missing)}, which no worker serves"
        return look(text, "start a worker that has it: `headway work --app module:app`")
    return ok("every task that jobs wait for is served" if waiting else "no job is ready to start")


# --- queue --------------------------------------------------------------------------------------------------------


def queue(tx: Tx) -> Answer:
    found = tx.run("pauses_of_all", limit=LOOKED_AT)
    if not found:
        return ok("open")
    who = [
        f"{'everybody' if not number else f'tenant {name}'}{f' ({note})' if note else ''}"
        for number, name, _, note in found
    ]
    verb = "`headway queue resume --all`" if not found[0][0] else "`headway queue resume`"
    return look(f"paused for {some(who)}", f"let it go on with {verb}, when nothing speaks against it")


def held(tx: Tx) -> Answer:
    counts = figures.held_jobs(tx)
    if not any(counts.values()):
        return ok("no job waits for a person")
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    holders = tx.run("holders_of_all", limit=LOOKED_AT)
    keeps = [f"{target} (job {job_id}, {State(status).name})" for job_id, status, target in holders]
    kept = f"; targets kept: {some(keeps)}" if keeps else ""
    text = "resume, resolve, retry, release or cancel them: `headway jobs ls --status PAUSED,ERROR`"
    return look(f"{told} wait for a person{kept}", text)


def targets(tx: Tx) -> Answer:
    found = tx.run("paused_targets_of_all", limit=LOOKED_AT)
    if not found:
        return ok("no target is paused")
    named = [f"{name}{f' ({note})' if note else ''}" for name, _, note in found]
    return look(f"paused: {some(named)}", "`headway targets resume NAME`, when nothing speaks against it")


def limits(tx: Tx, wished: Concurrency, resources: Mapping[str, int]) -> Answer:
    """What a worker that lives keeps the next one from changing."""
    differ = [str(one) for one in differences(tx, wished, resources)]
    if not differ:
        return ok("the limits are those of the settings")
    if not living(tx):
        return ok(f"the next worker to start takes over what the settings say: now {some(differ)}")
    text = "`headway up --adopt-settings` takes the settings over, `headway limits ls` shows what is in force"
    return look(f"in force is other than the settings say: {some(differ)}", text)


# --- schedules and webhooks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Unusable:
    name: str
    why: str


def schedules(tx: Tx, own: Collection[str]) -> Answer:
    """Whether each can be read here, and names tasks that some worker has, or had lately; `own` are known anyway."""
    known = {name for name, *_ in tx.run("known_tasks", within=micros(KNOWN_FOR))} | set(own)
    found = [Schedule(*row) for row in tx.run("enabled_schedules", limit=LOOKED_AT)]
    if not found:
        return ok("no schedule is enabled")
    if unusable := [one for one in (_unusable(schedule, known) for schedule in found) if one is not None]:
        told = [f"{one.name}: {one.why}" for one in unusable]
        return look(f"cannot run: {some(told)}", "correct it with `headway apply`, or disable it")
    return ok(f"{len(found)} enabled, all of them can be read")


def _unusable(schedule: Schedule, known: Collection[str]) -> _Unusable | None:
    try:
        steps = schedule.parsed.steps
    except BadInput as error:
        return _Unusable(schedule.name, str(error))
    missing = sorted({step.task for step in steps if step.task is not None} - set(known))
    return _Unusable(schedule.name, f"no worker has had {some(missing)} lately") if missing else None


def ticks(tx: Tx) -> Answer:
    lag = figures.tick_lag(tx)
    if lag > LATE_TICK:
        text = "start a process with the role scheduler (`headway up`), or see in its log why it cannot fire"
        return broken(f"a tick is {span(micros(lag))} late", text)
    return ok("no tick is late")


def webhooks(tx: Tx) -> Answer:
    ((now,),) = tx.run("time")
    found = [Endpoint(*row) for row in tx.run("opened_endpoints", limit=LOOKED_AT)]
    if found:
        first = hook_words.standing(found[0], now).text
        text = "see what it answered with `headway webhooks deliveries NUMBER`, mend it, send a `headway webhooks test`"
        return look(f"{some([f'webhook {one.id}' for one in found])} fails: {first}", text)
    ((due, now),) = tx.run("oldest_due_delivery", most=figures.COUNTED)
    if due is not None and now - due > micros(LATE_TICK):
        return broken(f"a delivery has been due for {span(now - due)}", "start a process with the role scheduler")
    return ok("what is due has been sent")

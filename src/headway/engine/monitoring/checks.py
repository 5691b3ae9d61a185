"""Checks of the records of all tenants: workers, queue, schedules, webhooks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headway.clock import micros
from headway.engine.client.client import KNOWN_FOR
from headway.engine.client.limits import differences, lives, living
from headway.engine.execution import process_tree
from headway.engine.monitoring.readiness import LATE_TICK
from headway.errors import BadInput
from headway.model.access.secrets import OwnedSecret
from headway.model.access.tenants import EVERYBODY
from headway.model.checks import Answer, away, broken, judge_durability, look, ok, skipped
from headway.model.explain.forecast import span
from headway.model.jobs.states import State
from headway.model.queue.policies import Concurrency
from headway.model.schedules.definition import Schedule
from headway.model.values.json import instant_text
from headway.model.webhooks.webhook import Endpoint
from headway.store import stats, worker_views
from headway.store.db import Tx
from headway.store.migrations import versions
from headway.store.sqlite.read_only import server
from headway.store.worker_views import WorkerView
from headway.store.workers import worker_name
from headway.text import webhooks as text_webhooks
from headway.text.workers import standing

NAMED = 3
LOOKED_AT = 1_000
START = "start a Headway process that reaches the database: every process runs recovery"


def some(names: Sequence[str], most: int = NAMED) -> str:
    """Returns the first names, and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def durability(tx: Tx) -> Answer:
    """Judges the settings that decide the durability of a PostgreSQL server."""
    found = server(tx)
    return judge_durability(
        fsync=found.fsync, full_page_writes=found.full_page_writes, synchronous_commit=found.synchronous_commit
    )


def not_ours(tx: Tx) -> Answer | None:
    """Returns None for a Headway database, otherwise the answer that ends the checks."""
    ((found,),) = tx.run(f"schema_found_{tx.database.dialect}")
    if found:
        return None
    return away("it is not a Headway database yet", "create it with `headway up` or `headway db migrate`")


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
    return ok(f"schema {found}, {stats.size(tx) / 1e6:.1f} MB")


# --- workers ------------------------------------------------------------------------------------------------------


def _word(one: WorkerView) -> str:
    """Returns the state of a worker; `halted` if a signal stopped its process here."""
    word = standing(one.shown_state, left=False, has_lease=one.has_lease, process=one.has_lease and lives(one)).word
    here = (one.host, one.boot) == (process_tree.host(), process_tree.boot_id())
    return "halted" if word == "live" and here and process_tree.halted(one.pid) else word


_TODO = {
    "halted": "continue it with `kill -CONT PID`, or end it",
    "paused": "free processes, memory or file descriptors on its host; it continues by itself",
    "stuck": "see its jobs with `headway workers ls`; end its process if they never stop",
    "silent": "check that its host is up and reaches the database; otherwise start another worker",
    "dead": "start it again; its jobs are recovered automatically",
}


def _named(one: WorkerView) -> str:
    why = f" ({one.note})" if one.note is not None else ""
    return f"{worker_name(one.id)[:8]} on {one.host} pid {one.pid}{why}"


def workers(tx: Tx) -> Answer:
    found = [(one, _word(one)) for one in worker_views.workers(tx, within=0.0)]
    at_work = [one for one, word in found if word in ("live", "draining")]
    slots = sum(one.slots for one in at_work)
    detail = f"{len(at_work)} at work with {slots} slots" if at_work else "no worker is at work"
    waiting = not at_work and bool(tx.run("filled_buckets"))
    detail += ", and jobs wait" if waiting else ""
    for word, todo in _TODO.items():
        if bad := [_named(one) for one, is_so in found if is_so == word]:
            judge = look if at_work else broken
            return judge(f"{detail}; {word}: {some(bad)}", todo)
    if not at_work:
        judge = broken if waiting else look
        return judge(detail, "start one with `headway up`, or `headway work`")
    leaving = sum(one.state == "draining" for one in at_work)
    return ok(f"{detail}{f', {leaving} of them ending' if leaving else ''}")


def recovery(tx: Tx, *, interval: float) -> Answer:
    """Checks that no lost worker and no lost claim is left.

    Every process recovers a silent worker once it has watched it for a lease.
    """
    late: list[str] = []
    left = 0
    for one in worker_views.workers(tx, within=0.0):
        lease = max(0, one.lease_until - one.beat_at)
        if one.now - one.lease_until > lease + micros(2 * interval + LATE_TICK):
            late.append(f"worker {worker_name(one.id)[:8]} on {one.host} (silent for {span(one.now - one.beat_at)})")
        elif not lives(one):
            left += len(one.running)
    jobs = [f"job {job_id}" for job_id, *_ in tx.run("orphans", worker_id=-1, slot=-1, limit=200)]
    if late or jobs:
        text = f"not recovered: {some([*late, *jobs])}"
        return broken(text, START)
    if left:
        text = f"{left} job{' waits' if left == 1 else 's wait'} for the next recovery"
        return ok(text) if living(tx) else look(text, START)
    return ok("nothing is left to recover")


def one_machine(tx: Tx) -> Answer:
    """Checks that only one machine uses an SQLite file.

    Containers have different host names and share one boot id.
    """
    alive = [one for one in worker_views.workers(tx, within=0.0) if one.has_lease]
    machines = {one.boot.partition("/")[0]: one.host for one in alive}
    if len(set(machines.values())) > 1:
        text = f"workers of several machines use this file: {some(sorted(set(machines.values())))}"
        return broken(text, "stop all but one of them, run `headway db check`, and use PostgreSQL for several machines")
    return ok("all workers are on one machine")


def tasks(tx: Tx) -> Answer:
    """Checks for queued jobs whose task no worker has."""
    served = {task for one in living(tx) for task in one.tasks}
    if not served:
        return skipped("no worker is at work")
    filled = {number for (number,) in tx.run("filled_buckets")}
    waiting = {task for number, _, task, *_ in tx.run("all_buckets") if number in filled}
    if missing := sorted(waiting - served):
        text = f"jobs wait for {some(missing)}, which no worker serves"
        return look(text, "start a worker with that task: `headway work --app module:app`")
    return ok("every task that jobs wait for is served" if waiting else "no job is ready to start")


def owners(tx: Tx, *, secrets: Mapping[str, OwnedSecret]) -> Answer:
    """Checks that the owners of each secret exist. Only workers of the last days tell which tasks there are."""
    if not secrets:
        return ok("the settings name no secrets")
    tasks = [task for task, *_ in tx.run("known_tasks", within=micros(KNOWN_FOR))]
    gone = list(_without_tenant(tx, secrets))
    if tasks:
        nothing = {name: secret.unused_patterns(tasks) for name, secret in secrets.items()}
        gone += [
            f"{name} is for the task {some(found)}, which no worker has" for name, found in nothing.items() if found
        ]
    if gone:
        return look("; ".join(gone), "correct `tenants` and `tasks` in `secrets`, or create the tenant")
    return ok("every secret has owners that exist")


def _without_tenant(tx: Tx, secrets: Mapping[str, OwnedSecret]) -> Iterator[str]:
    wanted = {tenant for secret in secrets.values() for tenant in secret.tenants} - {EVERYBODY}
    missing = {tenant for tenant in wanted if not tx.run("tenant_named", name=tenant)}
    for name, secret in secrets.items():
        if found := [tenant for tenant in secret.tenants if tenant in missing]:
            yield f"{name} is for the tenant {some(found)}, which does not exist"


# --- queue --------------------------------------------------------------------------------------------------------


def queue(tx: Tx) -> Answer:
    found = tx.run("pauses_of_all", limit=LOOKED_AT)
    if not found:
        return ok("open")
    who = [
        f"{'all tenants' if not number else f'tenant {name}'}{f' ({note})' if note else ''}"
        for number, name, _, note in found
    ]
    verb = "`headway queue resume --all`" if not found[0][0] else "`headway queue resume`"
    return look(f"paused for {some(who)}", f"resume it with {verb}")


def held(tx: Tx) -> Answer:
    counts = stats.held_jobs(tx)
    if not any(counts.values()):
        return ok("no job waits for a person")
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    holders = tx.run("holders_of_all", limit=LOOKED_AT)
    keeps = [f"{target} (job {job_id}, {State(status).name})" for job_id, status, target in holders]
    kept = f"; targets held: {some(keeps)}" if keeps else ""
    text = "resume, resolve, retry, release or cancel them: `headway jobs ls --status PAUSED,ERROR`"
    return look(f"{told} wait for a person{kept}", text)


def targets(tx: Tx) -> Answer:
    found = tx.run("paused_targets_of_all", limit=LOOKED_AT)
    if not found:
        return ok("no target is paused")
    named = [f"{name}{f' ({note})' if note else ''}" for name, _, note in found]
    return look(f"paused: {some(named)}", "resume it with `headway targets resume NAME` when it is safe to use")


def limits(tx: Tx, wished: Concurrency, resources: Mapping[str, int]) -> Answer:
    """Checks that the limits in force match the settings.

    A living worker keeps the next one from changing them.
    """
    differ = [str(one) for one in differences(tx, wished, resources)]
    if not differ:
        return ok("the limits match the settings")
    if not living(tx):
        return ok(f"the next worker to start applies the settings; in force now: {some(differ)}")
    text = "apply the settings with `headway up --adopt-settings`; `headway limits ls` shows the limits in force"
    return look(f"the limits in force differ from the settings: {some(differ)}", text)


# --- schedules and webhooks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Unusable:
    name: str
    why: str


def schedules(tx: Tx, own: Collection[str]) -> Answer:
    """Checks that every enabled schedule can be parsed and runs known tasks.

    Tasks are known if a recent worker has them, or if they are in `own`.
    """
    known = {name for name, *_ in tx.run("known_tasks", within=micros(KNOWN_FOR))} | set(own)
    found = [Schedule(*row) for row in tx.run("enabled_schedules", limit=LOOKED_AT)]
    if not found:
        return ok("no schedule is enabled")
    now = tx.now()
    if ahead := [f"{one.name} until {instant_text(one.decided_until)}" for one in found if one.ahead(now)]:
        text = f"silent, because a clock that was ahead decided their times: {some(ahead)}"
        return broken(text, "check the clock, then `headway schedules reset NAME`")
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
    return _Unusable(schedule.name, f"no recent worker has {some(missing)}") if missing else None


def ticks(tx: Tx) -> Answer:
    lag = stats.tick_lag(tx)
    if lag > LATE_TICK:
        text = "start a process with the role scheduler (`headway up`), or see in its log why it cannot fire"
        return broken(f"a tick is {span(micros(lag))} late", text)
    return ok("no tick is late")


def webhooks(tx: Tx) -> Answer:
    now = tx.now()
    found = [Endpoint(*row) for row in tx.run("opened_endpoints", limit=LOOKED_AT)]
    if found:
        first = text_webhooks.standing(found[0], now).text
        text = "see its answers with `headway webhooks deliveries NUMBER`, repair it, run `headway webhooks test`"
        return look(f"{some([f'webhook {one.id}' for one in found])} fails: {first}", text)
    ((due, now),) = tx.run("oldest_due_delivery", most=stats.COUNTED)
    if due is not None and now - due > micros(LATE_TICK):
        return broken(f"a delivery has been due for {span(now - due)}", "start a process with the role scheduler")
    return ok("no delivery is overdue")

"""What must be true after a crash and a restart, whatever was killed: beside `verify`, what callers were told."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator

from headway.model.jobs.states import State
from headway.verify import check
from tests.system.support import access_scripts, hook_scripts, stages
from tests.system.support.record import Record, dump
from tests.system.support.world import Fact, World


def findings(world: World, *, quiet: bool) -> list[str]:
    """What `verify` says, and the database about itself. One process works at a time, so nothing needs to settle."""
    settle = 0.0 if world.clock is not None or world.database.dialect == "sqlite" else None
    report = check(world.database, quiet=quiet, settle=settle)
    return [f"{f.invariant} {f.thing}: {f.text}" for f in report.findings] + world.database.check()


def judge(world: World, facts: list[Fact]) -> list[str]:
    """The promises to callers that do not hold at the end."""
    record = Record(dump(world.database))
    found = [fact["broken"] for fact in facts if "broken" in fact]
    for promise in (_made, _batches, _keys, _runs, _checkpoints, _verbs, _ends, _owners, _order, _artifacts):
        found += promise(record, facts)
    found += [*stages.wrong(record), *stages.told(record, facts), *access_scripts.wrong(record, facts)]
    found += hook_scripts.wrong(record, facts)
    found += _missing_files(record, world)
    found += _recovery_changes_nothing(record, world)
    return found


def _recovery_changes_nothing(record: Record, world: World) -> Iterator[str]:
    """When all is settled, recovery leaves every row as it is."""
    recovery = world.recovery()
    recovery.tick()
    recovery.tick()
    for table, rows in dump(world.database).items():
        if rows != record.rows[table]:
            yield f"recovery changed {table} although nothing was left to do"


def _made(record: Record, facts: list[Fact]) -> Iterator[str]:
    """An acknowledged job exists, as it was asked for, and ends as its script expects."""
    edited = {fact["editing"] for fact in facts if "editing" in fact}
    pruned = any("pruned" in fact for fact in facts)
    for fact in (fact for fact in facts if "made" in fact):
        for job_id, params in zip(fact["made"], fact["params"], strict=True):
            if job_id not in record.jobs:
                if not (fact["expect"] == "pruned" and (pruned or _tallied(record))):
                    yield f"job {job_id} was acknowledged and does not exist"
                continue
            kept = json.loads(record.jobs[job_id]["params"])
            if job_id not in edited and not params.items() <= kept.items():
                yield f"job {job_id} was made with {params} and has {kept}"
            yield from _expected(record, job_id, fact)


def _tallied(record: Record) -> bool:
    return bool(record.rows["hw_tally"])


def _expected(record: Record, job_id: int, fact: Fact) -> Iterator[str]:
    chain = record.chain(job_id)
    if fact["expect"] not in (None, "pruned") and record.state(chain[-1]) != fact["expect"]:
        states = ", ".join(f"{one} {record.state(one)}" for one in chain)
        yield f"job {job_id} was to end {fact['expect']}: {states}"
    if fact["length"] is not None and len(chain) != fact["length"]:
        yield f"the chain of job {job_id} was to have {fact['length']} jobs: {chain}"


def _batches(record: Record, facts: list[Fact]) -> Iterator[str]:
    """Jobs that were to be made together exist all or none."""
    sizes = Counter(json.loads(row["params"]).get("batch") for row in record.jobs.values() if row["retry_of"] is None)
    for fact in facts:
        if "batch" in fact and sizes[fact["batch"]] not in (0, fact["size"]):
            yield f"of the {fact['size']} jobs of batch {fact['batch']}, {sizes[fact['batch']]} exist"


def _keys(record: Record, facts: list[Fact]) -> Iterator[str]:
    """Within one phase nothing runs between the two: the second answer names the first job."""
    told: dict[str, int] = {}
    for fact in facts:
        if "key" in fact:
            if fact["created"] == (fact["key"] in told):
                yield f"key {fact['key']}: {fact['id']} was answered after {told.get(fact['key'])}"
            if told.setdefault(fact["key"], fact["id"]) != fact["id"]:
                yield f"key {fact['key']} was answered with {fact['id']} and {told[fact['key']]}"


def _runs(record: Record, facts: list[Fact]) -> Iterator[str]:
    """A claim runs once; what began was claimed; what completed says the fence it completed under; one end."""
    began = Counter((fact["began"], fact["fence"]) for fact in facts if "began" in fact)
    for (job_id, fence), count in began.items():
        if count > 1:
            yield f"job {job_id} ran {count} times under fence {fence}"
        if job_id in record.jobs and record.jobs[job_id]["fence"] < fence:
            yield f"job {job_id} ran under fence {fence}, which its row has not reached"
    for job_id, result in record.results.items():
        said = result.get("fence") if isinstance(result, dict) else None
        if said is not None and said != record.jobs[job_id]["fence"]:
            yield f"the result of job {job_id} is of fence {said}, its row has fence {record.jobs[job_id]['fence']}"
    for job_id, report in record.reports.items():
        ended = record.jobs[job_id]["finished_at"]
        if ended is not None and report["at"] > ended:
            yield f"job {job_id} ended at {ended}, and a report of it was stored at {report['at']}"
    completed = Counter(event.thing_id for event in record.events if event.kind in ("job.completed", "job.resolved"))
    # A person may retry a failed job although its automatic retry has succeeded.
    chains = Counter(record.root(job_id, automatic=True) for job_id in completed if job_id in record.jobs)
    for job_id, count in (*completed.items(), *chains.items()):
        if count > 1:
            yield f"job {job_id} or its chain was completed {count} times"


def _checkpoints(record: Record, facts: list[Fact]) -> Iterator[str]:
    """A checkpoint that was acknowledged is there for whoever begins later, and in the end."""
    stored: dict[int, int] = {}
    for fact in facts:
        if "checkpoint" in fact and fact["job"] in record.jobs:
            stored[record.root(fact["job"])] = fact["checkpoint"]
        if "began" in fact and fact["began"] in record.jobs:
            step = stored.get(record.root(fact["began"]), 0)
            if (fact["saw"] or {"step": 0})["step"] < step:
                yield f"job {fact['began']} began from {fact['saw']} after step {step} was stored"
    for root, step in stored.items():
        last = record.reports.get(record.chain(root)[-1])
        kept = json.loads(last["checkpoint"])["step"] if last and last["checkpoint"] else 0
        if kept < step:
            yield f"step {step} of job {root} was stored; in the end there is {kept}"


def _verbs(record: Record, facts: list[Fact]) -> Iterator[str]:
    """What a person was told happened did happen. (That a stop request is not lost is I-13.)"""
    kinds: dict[int, set[str]] = defaultdict(set)
    for event in record.events:
        if event.thing == "job":
            kinds[event.thing_id].add(event.kind)
    for fact in facts:
        match fact:
            case {"cancelled": int(job_id)}:
                if record.state(job_id) not in ("CANCELLED", "COMPLETED", "SKIPPED"):
                    yield f"job {job_id} was cancelled and is {record.state(job_id)}"
            case {"paused": int(job_id)}:
                if not kinds[job_id] & {"job.held", "job.stop_requested"}:
                    yield f"job {job_id} was interrupted and nothing says so"
            case {"resumed": int(job_id)}:
                if "job.resumed" not in kinds[job_id]:
                    yield f"job {job_id} was resumed and nothing says so"
            case {"released": int(job_id)}:
                if record.state(job_id) != "FAILED":
                    yield f"job {job_id} was released and is {record.state(job_id)}"
            case {"resolved": int(job_id), "result": result}:
                if record.state(job_id) != "COMPLETED" or record.results.get(job_id) != result:
                    yield f"job {job_id} was resolved and is {record.state(job_id)}, {record.results.get(job_id)}"
            case {"retried": int(job_id), "by": int(again)}:
                if again not in record.jobs or again not in record.chain(job_id):
                    yield f"job {job_id} was retried by {again}, which does not retry it"
            case {"edited": int(job_id)}:
                yield from _edited(record, job_id, fact)


def _edited(record: Record, job_id: int, fact: Fact) -> Iterator[str]:
    row = record.jobs[job_id]
    if "params" in fact and json.loads(row["params"]) != fact["params"]:
        yield f"job {job_id} was given {fact['params']} and has {row['params']}"
    if "priority" in fact and row["priority"] != fact["priority"]:
        yield f"job {job_id} was given priority {fact['priority']} and has {row['priority']}"


def _ends(record: Record, facts: list[Fact]) -> Iterator[str]:
    for job_id, row in record.jobs.items():
        if row["status"] < State.COMPLETED:
            yield f"job {job_id} never ended: it is {State(row['status']).name}"


def _owners(record: Record, facts: list[Fact]) -> Iterator[str]:
    """A claim is ended by its own worker, or lost after that was given up; a stale fence is rejected with one event."""
    gone: set[str] = set()
    owner: dict[int, str] = {}
    for event in record.events:
        if event.kind == "worker.gone":
            gone.add(f"{event.thing_id:x}")
        elif event.kind == "job.claimed":
            owner[event.thing_id] = event.actor["id"]
        elif event.thing == "job" and event.status not in (None, State.RUNNING) and event.thing_id in owner:
            was, by = owner.pop(event.thing_id), event.actor
            if by["type"] == "worker" and by["id"] != was:
                yield f"job {event.thing_id} was held by worker {was}, and worker {by['id']} ended it ({event.kind})"
            if by["type"] == "system" and event.data.get("failure_kind") == "LOST" and was not in gone:
                yield f"job {event.thing_id} was taken from worker {was}, which nobody gave up"
    late = Counter((e.thing_id, e.fence) for e in record.events if e.kind == "job.late_write_rejected")
    for (job_id, fence), count in late.items():
        if count > 1:
            yield f"late writes to job {job_id} under fence {fence} left {count} events"


def _order(record: Record, facts: list[Fact]) -> Iterator[str]:
    """The queue was claimed in the order in which its jobs were left."""
    claims: dict[int, int] = {}
    for event in record.events:
        if event.kind == "job.claimed":
            claims.setdefault(event.thing_id, event.id)
    for fact in facts:
        if "order" in fact:
            found = sorted(fact["order"], key=lambda job_id: claims.get(job_id, 0))
            if found != fact["order"]:
                yield f"the queue stood as {fact['order']} and was claimed as {found}"


def _artifacts(record: Record, facts: list[Fact]) -> Iterator[str]:
    kept = {(row["job_id"], row["name"]) for row in record.rows["hw_artifact"]}
    for fact in facts:
        if "attached" in fact and fact["job"] in record.jobs and (fact["job"], f"{fact['attached']}.txt") not in kept:
            yield f"{fact['attached']} was attached to job {fact['job']} and is not there"


def _missing_files(record: Record, world: World) -> Iterator[str]:
    """Every file a run names is there."""
    for row in record.rows["hw_artifact"]:
        if not (world.folder / "artifacts" / row["path"]).is_file():
            yield f"the file of {row['name']} of job {row['job_id']} is gone"

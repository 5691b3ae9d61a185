"""I-18: things that belong together belong to one tenant.

These are a job with its run, events, target, bucket and chain, a group with its jobs, a schedule with its ticks, a
reservation, a target and a token. The row of a tenant is what its events made of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headway.verify.history import History
from headway.verify.report import Finding, about_group, about_job
from headway.verify.rows import GroupHistory, JobHistory, JobRow, facts, numbers


def check(history: History, job: JobHistory) -> Iterator[Finding]:
    row = job.row
    if row is None:
        return
    for text in _strangers(history, job, row):
        yield about_job("I-18", job.id, f"it belongs to tenant {row.tenant_id}, {text}")


def _strangers(history: History, job: JobHistory, row: JobRow) -> Iterator[str]:
    tenant_id = row.tenant_id
    if tenant_id not in history.tenants:
        yield "which does not exist"
    if row.has_run and row.run_tenant != tenant_id:
        yield f"its run to tenant {row.run_tenant}"
    for event in job.events:
        if event.tenant_id != tenant_id:
            yield f"its event ({event.where}) to tenant {event.tenant_id}"
    if row.target_id is not None and history.targets.get(row.target_id) != tenant_id:
        yield f"its target {row.target_id} to {_whose(history.targets, row.target_id)}"
    yield from _bucket(history, row)
    if job.parent is not None and job.parent.id is not None and job.parent.tenant_id != tenant_id:
        yield f"job {job.parent.id}, which it retries, to tenant {job.parent.tenant_id}"


def _bucket(history: History, row: JobRow) -> Iterator[str]:
    bucket = history.buckets.get(row.bucket_id)
    if bucket is None:
        yield f"its bucket {row.bucket_id} does not exist"
    elif (bucket.tenant_id, bucket.task) != (row.tenant_id, row.task):
        yield f"its task is {row.task!r}, its bucket {row.bucket_id} of tenant {bucket.tenant_id} and {bucket.task!r}"
    elif bucket.on_target != (row.target_id is not None):
        kind = "with" if bucket.on_target else "without"
        yield f"its target is {row.target_id}, its bucket {row.bucket_id} for jobs {kind} one"


def _whose(owners: Mapping[int, int], number: int) -> str:
    return f"tenant {owners[number]}" if number in owners else "no tenant"


def check_lanes(history: History) -> Iterator[Finding]:
    """Yields buckets with a lane of another tenant.

    Lanes of the installation are allowed.
    """
    owners = _lane_owners(history)
    for bucket_id, bucket in history.buckets.items():
        for lane in bucket.lanes:
            if owners.get(lane) not in (0, bucket.tenant_id):
                yield Finding("I-18", f"bucket {bucket_id}", f"its lane {lane} belongs to {_whose(owners, lane)}")


def _lane_owners(history: History) -> dict[int, int]:
    return {lane: tenant_id for lane, tenant_id, *_ in history.tx.run("verify_lanes")}


def check_targets(history: History) -> Iterator[Finding]:
    """Yields targets whose events have another tenant or do not fit the row."""
    for target_id, tenant_id, version, last, first_tenant, last_tenant in history.tx.run("verify_targets"):
        if (first_tenant, last_tenant) != (tenant_id, tenant_id):
            text = f"it belongs to tenant {tenant_id}, its events to {first_tenant} and {last_tenant}"
            yield Finding("I-18", f"target {target_id}", text)
        elif version != last:
            text = f"its history ends with version {last}, its row has version {version}"
            yield Finding("I-02", f"target {target_id}", text)


def check_reservations(history: History) -> Iterator[Finding]:
    """Yields reservations with a lane, a target or events of another tenant."""
    owners = _lane_owners(history)
    for number, tenant_id, lanes, target_id, first, last in history.tx.run("verify_reserved"):
        thing = f"reservation {number}"
        for lane in numbers(lanes):
            if owners.get(lane) not in (0, tenant_id):
                yield Finding("I-18", thing, f"its lane {lane} belongs to {_whose(owners, lane)}")
        if target_id is not None and history.targets.get(target_id) != tenant_id:
            yield Finding("I-18", thing, f"its target {target_id} belongs to {_whose(history.targets, target_id)}")
        if (first, last) != (tenant_id, tenant_id):
            yield Finding("I-18", thing, f"it belongs to tenant {tenant_id}, its events to {first} and {last}")


def check_group(history: History, group: GroupHistory) -> Iterator[Finding]:
    """Yields a group with events, jobs or named things of another tenant."""
    row = group.row
    of = {f"job {member.job_id}": member.tenant_id for member in group.members}
    of |= {f"its event ({event.where})": event.tenant_id for event in group.events}
    named = (row.schedule_id, row.schedule_tenant), (row.retry_of, row.retried_tenant), (row.after_id, row.after_tenant)
    whats = ("schedule {}", "{}, which it retries,", "{}, which it follows,")
    of |= {what.format(number): owner for what, (number, owner) in zip(whats, named, strict=True) if owner is not None}
    if row.tenant_id not in history.tenants:
        yield about_group("I-18", row, f"it belongs to tenant {row.tenant_id}, which does not exist")
    if row.schedule_id is not None and row.schedule_tenant is None:
        yield about_group("I-18", row, f"its schedule {row.schedule_id} does not exist")
    for what, tenant_id in of.items():
        if tenant_id != row.tenant_id:
            text = f"it belongs to tenant {row.tenant_id}, {what} to tenant {tenant_id}"
            yield about_group("I-18", row, text)


def check_schedules(history: History) -> Iterator[Finding]:
    """Yields events and ticks that belong to another tenant than their schedule."""
    for thing, number, tenant_id, schedule_id, owner in history.tx.run("verify_foreign_ticks"):
        text = f"it belongs to tenant {tenant_id}, schedule {schedule_id} to tenant {owner}"
        yield Finding("I-18", f"{thing} {number}", text)


LIMITS = ("max_queued", "max_running", "max_schedules")


def check_tenants(history: History) -> Iterator[Finding]:
    """Yields tenants whose events do not lead to their row.

    The schema creates the first tenant, so it has no creation event.
    """
    recorded: dict[int, tuple[int, bool, list[int | None]]] = {}
    for tenant_id, version, kind, data in history.tx.run("verify_tenant_events"):
        _, active, limits = recorded.get(tenant_id, (0, True, [None] * len(LIMITS)))
        if kind in ("tenant.created", "tenant.edited"):
            limits = [facts(data).get(name) for name in LIMITS]
        elif kind in ("tenant.activated", "tenant.deactivated"):
            active = kind == "tenant.activated"
        recorded[tenant_id] = version, active, limits
    for tenant_id, version, active, *limits in history.tx.run("verify_tenant_rows"):
        last, was_active, led = recorded.get(tenant_id, (1, True, [None] * len(LIMITS)))
        if version != last:
            text = f"its history ends with version {last}, its row has version {version}"
            yield Finding("I-02", f"tenant {tenant_id}", text)
        elif (bool(active), limits) != (was_active, led):
            words = [f"{name} {limit}" for name, limit in zip(LIMITS, led, strict=True)]
            text = f"its events lead to {'active' if was_active else 'inactive'}, {', '.join(words)}; its row differs"
            yield Finding("I-05", f"tenant {tenant_id}", text)


def check_others(history: History) -> Iterator[Finding]:
    """Yields rows of another tenant than their token or delivery.

    Rows of a tenant that does not exist are reported too.
    """
    for thing, tenant_id, what, owner in history.tx.run("verify_foreign_things"):
        to = "which does not exist" if owner is None else f"{what} to tenant {owner}"
        yield Finding("I-18", thing, f"it belongs to tenant {tenant_id}, {to}")

"""Retries a failed job on request.

A waiting automatic retry is brought forward; otherwise a new job is inserted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headway.engine.client import idempotency
from headway.engine.client.authority import check_new_params, of_caller
from headway.engine.client.edit import check_params, new_place, params_text
from headway.engine.client.placed_again import placed_again, still_checked
from headway.errors import WrongState
from headway.model.groups.group import Group
from headway.model.jobs import actions
from headway.model.jobs.job import JobRecord, Options
from headway.model.jobs.states import State, Verb
from headway.model.values.names import check_budget, check_priority
from headway.store.db import Tx
from headway.store.groups import advance as groups
from headway.store.jobs import changes as jobs
from headway.store.jobs import views as job_views

if TYPE_CHECKING:
    from headway.engine.client.client import Client


@dataclass(frozen=True, slots=True)
class _RetryRequest:
    """Fields that the retry changes. None keeps the value."""

    params: str | None
    unfilled: str | None
    options: str | None
    priority: int | None


def retry(
    client: Client,
    job_id: int,
    *,
    params: Mapping[str, object] | None,
    priority: int | None,
    budget: Mapping[str, float] | None,
    again: bool,
) -> JobRecord:
    text, caller = params_text(params), of_caller(client)
    if priority is not None:
        check_priority(priority)
    checked: JobRecord | None = None

    def work(tx: Tx) -> int:
        group = groups.lock_of_job(tx, job_id)
        job = jobs.lock(tx, job_id, client.tenant_id)
        if text is not None:
            check_new_params(caller, tx, job)
        check_params(client, job, text)
        options = _with_budget(job, budget)
        given, unfilled = (None, None) if text is None else groups.fill_for(tx, job, text, at_once=True)
        requested = _RetryRequest(given, unfilled, options, priority)
        waiting = _waiting_retry(tx, job)
        if not again and waiting is None and job_views.retried(tx, [job.id]):
            raise WrongState(f"job {job.id} was already retried", code="retried", status=job.status.name)
        if group is not None and waiting is None:
            job = jobs.lock(tx, groups.last_of_step(tx, job))  # the chain continues from its last job
        still_checked(checked, waiting or job)
        tx.wake()
        if waiting is not None:
            return _bring_forward(tx, client, waiting, requested)
        return _insert(tx, client, job, requested, group)

    def place(found: JobRecord | None) -> int:
        nonlocal checked
        checked = found
        return idempotency.create_once(client, "retry", work, look=f"headway jobs show {job_id}")

    if text is not None:  # the params are the caller's, and checked with the job
        return client.get(place(None))
    return client.get(placed_again(client, lambda tx: _copied(tx, client, job_id), place))


def _copied(tx: Tx, client: Client, job_id: int) -> JobRecord:
    """Returns the job whose params a retry without new ones runs again: the last of its step, or a waiting retry."""
    job = jobs.find(tx, job_id, client.tenant_id)
    last = _last_retry(tx, job)
    return last if last is not None and (job.group_id is not None or last.status.claimable_later) else job


def _with_budget(job: JobRecord, budget: Mapping[str, float] | None) -> str | None:
    if budget is None:
        return None
    return replace(Options.parse(job.options), budget=check_budget(budget)).text()


def _last_retry(tx: Tx, job: JobRecord) -> JobRecord | None:
    last: JobRecord | None = None
    follower = jobs.automatic_retry(tx, job.id)
    while follower is not None:
        last = follower
        follower = jobs.automatic_retry(tx, last.id)
    if job.group_id is not None and (number := groups.last_of_step(tx, job)) != job.id:
        last = jobs.find(tx, number, job.tenant_id)  # manual retries count too
    return last


def _waiting_retry(tx: Tx, job: JobRecord) -> JobRecord | None:
    """Returns the last retry of a job if it waits; refuses while one is active."""
    last = _last_retry(tx, job)
    if last is not None:
        last = jobs.lock(tx, last.id)  # it may have been claimed, or have ended, since it was read
    if last is None or last.status.terminal:
        return None
    if last.status.claimable_later:
        return last
    text = f"job {job.id} is already being retried: job {last.id} is {last.status.name}"
    raise WrongState(text, status=last.status.name, job_id=last.id)


def _bring_forward(tx: Tx, client: Client, waiting: JobRecord, requested: _RetryRequest) -> int:
    position = new_place(tx, waiting, requested.priority)
    forward = actions.bring_forward(
        waiting,
        now=client.time_in(tx),
        params=requested.params,
        unfilled=requested.unfilled,
        priority=requested.priority,
        position=position,
        options=requested.options,
    )
    jobs.apply(tx, forward, client.actor)
    if forward.job.params != waiting.params:
        tx.run("forget_checkpoint", job_id=waiting.id)
    return waiting.id


def _insert(tx: Tx, client: Client, job: JobRecord, requested: _RetryRequest, group: Group | None) -> int:
    _close(tx, client, job)
    position = new_place(tx, job, requested.priority)
    return jobs.insert_retry(
        tx,
        job,
        client.actor,
        delay=0.0,
        auto=False,
        params=requested.params,
        unfilled=requested.unfilled,
        options=requested.options,
        priority=requested.priority,
        position=position,
        in_group=group is not None and groups.is_open(tx, job),
    )


def _close(tx: Tx, client: Client, job: JobRecord) -> None:
    """Closes a held job; refuses a job that did not fail."""
    if job.status in (State.PAUSED, State.ERROR):
        jobs.apply(tx, actions.close_for_retry(job, by=client.actor.shown, now=client.time_in(tx)), client.actor)
    else:
        run = jobs.run_of(tx, job.id)
        if not job.status.terminal or run is None or run.status is not State.FAILED:
            raise actions.refuse(job, Verb.RETRY)
    if job.key is not None:
        holder = jobs.with_key(tx, job.tenant_id, job.task, job.key)
        if holder is not None:
            raise WrongState(f"the key {job.key!r} is taken by job {holder.id}", status=holder.status.name)

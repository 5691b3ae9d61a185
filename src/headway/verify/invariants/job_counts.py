"""I-01: no job is lost.

Every job has a creation, every history has a job, pruning accounts for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

from headway.verify.history import History
from headway.verify.report import Finding, about_job
from headway.verify.rows import JobHistory


def check(history: History, job: JobHistory) -> Iterator[Finding]:
    history.counted["events"] += len(job.events)
    if job.row is None:
        last = job.events[-1]
        yield about_job("I-01", job.id, f"it has a history (up to {last.where}) and no row")
        return
    history.counted["jobs"] += 1
    first = job.events[0] if job.events else None
    if first is None:
        yield about_job("I-01", job.id, "it has a row and no history")
    elif (first.version, first.kind) != (1, "job.created"):
        yield about_job("I-01", job.id, f"its history does not begin with its creation but with {first.where}")


def check_pruned(history: History) -> Iterator[Finding]:
    """Compares the tally of pruning with the ids given out.

    Call it after all jobs were counted.
    """
    pruned = {name: int(count) for name, count in history.tx.run("verify_tally")}
    ((given,),) = history.own("verify_numbers")
    jobs = pruned.get("jobs", 0)
    history.counted["pruned"] = jobs
    if history.counted["jobs"] + jobs > given:
        text = f"{history.counted['jobs']} jobs exist and {jobs} were pruned, but only {given} numbers were ever given"
        yield Finding("I-01", "tally", text)
    if "runs" in pruned and pruned["runs"] > jobs:
        yield Finding("I-01", "tally", f"{pruned['runs']} runs were pruned with {jobs} jobs")
    # A job that may be pruned has at least a creation and an end.
    if "events" in pruned and pruned["events"] < 2 * jobs:
        yield Finding("I-01", "tally", f"only {pruned['events']} events were pruned with {jobs} jobs")


def check_protection(history: History) -> Iterator[Finding]:
    """Checks that the flag that permits deletes is off.

    Only a pruning transaction sets it.
    """
    flags = [active for (active,) in history.tx.run("verify_pruning")]
    if flags != [0]:
        yield Finding("I-01", "pruning", f"records can be deleted: the flag of pruning is {flags} outside of it")


def check_things(history: History) -> Iterator[Finding]:
    """Checks I-02 for all things except jobs: their versions have no gap."""
    for thing, thing_id, first, last, count in history.tx.run("verify_things"):
        text = f"it has {count} events for the versions {first} to {last}"
        yield Finding("I-02", f"{thing} {thing_id}", text)

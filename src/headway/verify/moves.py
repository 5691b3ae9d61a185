"""The legal paths of a job, written out from the domain's own table: the checker must not trust the code it checks."""

from __future__ import annotations

WORDS = ("WAITING", "SCHEDULED", "QUEUED", "RUNNING", "PAUSED", "ERROR", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED")
WAITING, SCHEDULED, QUEUED, RUNNING, PAUSED, ERROR, COMPLETED, FAILED, SKIPPED, CANCELLED = range(10)
FIRST_TERMINAL = COMPLETED
HELD = (PAUSED, ERROR)

CREATED = {WAITING, SCHEDULED, QUEUED}
LEGAL = {
    WAITING: {SCHEDULED, QUEUED, SKIPPED, WAITING, CANCELLED},
    SCHEDULED: {QUEUED, WAITING, SKIPPED, CANCELLED},
    QUEUED: {RUNNING, WAITING, SKIPPED, CANCELLED},
    RUNNING: {COMPLETED, FAILED, SKIPPED, PAUSED, ERROR, CANCELLED},
    PAUSED: {QUEUED, COMPLETED, FAILED, CANCELLED},
    ERROR: {QUEUED, COMPLETED, FAILED, CANCELLED},
}
# Holding and expiry are for jobs that were never claimed.
ONLY_UNCLAIMED = {(origin, target) for origin in (WAITING, SCHEDULED, QUEUED) for target in (WAITING, SKIPPED)}

# The states each kind of event may lead to. A kind that is not named here says something else about a job.
LEADS_TO = {
    "job.created": CREATED,
    "job.promoted": {QUEUED},
    "job.held": {WAITING},
    "job.unheld": {WAITING},
    "job.released": {SCHEDULED, QUEUED},
    "job.claimed": {RUNNING},
    "job.completed": {COMPLETED},
    "job.failed": {FAILED},
    "job.skipped": {SKIPPED},
    "job.cancelled": {CANCELLED},
    "job.paused": {PAUSED},
    "job.error": {ERROR},
    "job.resumed": {SCHEDULED, QUEUED},
    "job.resolved": {COMPLETED},
    "job.stop_requested": {RUNNING},
}
ENDINGS = {"job.completed", "job.failed", "job.skipped", "job.cancelled", "job.resolved"}
# These move a job, so the state before must be another one. Not `job.promoted`: a retry that is brought forward may be
# in the queue already.
MOVING = ENDINGS | {"job.claimed", "job.paused", "job.error", "job.resumed", "job.released"}
# These change a job that waits or runs, and nothing that has ended.
CHANGES = {"job.edited", "job.moved", "job.relaned", "job.held", "job.unheld", "job.promoted", "job.stop_requested"}
# These say something about a job and never move it.
STILL = {"job.moved", "job.relaned", "job.stop_requested"}
# Other lanes are for jobs that nobody has.
RELANED = "job.relaned"
# What a group does to its members.
RELEASED = "job.released"
PREDECESSOR_FAILED = "predecessor failed"
LATE = "job.late_write_rejected"


def word(state: int | None) -> str:
    return "nothing" if state is None else WORDS[state] if 0 <= state < len(WORDS) else f"state {state}"

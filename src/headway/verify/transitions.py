"""The legal transitions of a job, copied from the domain's table.

The checker must not trust the code that it checks, so it does not import the state machine.
"""

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

# The states that each kind of event may lead to. Other kinds do not change the state.
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
# Kinds that change the state, so the state before must differ. Not `job.promoted`: a retry that is brought forward may
# be QUEUED already.
MOVING = ENDINGS | {"job.claimed", "job.paused", "job.error", "job.resumed", "job.released"}
# Kinds that change a job that waits or runs, never one that has ended.
CHANGES = {"job.edited", "job.moved", "job.relaned", "job.held", "job.unheld", "job.promoted", "job.stop_requested"}
# Kinds that never change the state.
STILL = {"job.moved", "job.relaned", "job.stop_requested"}
# Only a job that no worker has claimed can get other lanes.
RELANED = "job.relaned"
# The event and the reason by which a group changes its members.
RELEASED = "job.released"
PREDECESSOR_FAILED = "predecessor failed"
LATE = "job.late_write_rejected"


def word(state: int | None) -> str:
    return "nothing" if state is None else WORDS[state] if 0 <= state < len(WORDS) else f"state {state}"

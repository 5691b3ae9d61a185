"""Which thread may write what, in a worker.

Four kinds of threads meet in a worker. *worker*: the loop that calls `tick`. *heartbeat*: listens to the heartbeat
process. *work*: user code runs or ends in it. *caller*: the supervisor or recovery, which start, drain and renew.
`WRITERS` says which of them may assign an attribute after `__init__`; an attribute that is not listed belongs to the
worker's thread. `life.MOVERS` says which of them may move the worker into which state. Collections that several
threads change are `pool.running` (worker adds and removes), `pool.at_work` and `pool.ended_work` (work ends in its own
thread) and `stale.unrecorded` (any).
"""

from __future__ import annotations

# The threads that may assign an attribute after `__init__`, where it is not the worker's thread alone. Each such
# attribute is one value that readers may see a moment late.
WRITERS = {
    "WorkerLife.state": {"worker", "heartbeat", "caller"},
    "ClaimReload.needed": {"worker", "heartbeat"},
    "ReportBuffer.due_at": {"worker", "work"},
    "Worker.thread": {"caller"},
    "Lease.renewed": {"worker", "heartbeat", "caller"},
    "Lease.abandoned": {"worker", "heartbeat", "caller"},
    "Lease.heartbeat": {"caller"},
    # `has_claimable_work`, which `headway work --until-idle` asks while the worker is idle.
    "ClaimStrategy.due": {"worker", "caller"},
    "ClaimStrategy.tenants": {"caller"},
}

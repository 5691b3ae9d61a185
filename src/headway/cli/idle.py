"""What has to be so before a database is replaced or moved: nobody is at work in it."""

from __future__ import annotations

from headway.engine.limits import lives, living
from headway.errors import Refused
from headway.store import at_work
from headway.store.at_work import Held
from headway.store.db import Tx

SHOWN = 3


def refuse_workers(tx: Tx) -> None:
    alive = living(tx)
    if alive:
        where = ", ".join(f"pid {worker.pid} on {worker.host}" for worker in alive[:SHOWN])
        raise Refused(f"{len(alive)} worker{'s' if len(alive) > 1 else ''} at work ({where}): stop them first")


def refuse_work(tx: Tx) -> None:
    """No workers, direct calls or webhooks under way in a file, nor what a worker that died has left RUNNING."""
    refuse_workers(tx)
    ((now,),) = tx.run("time")
    if held := [one.id for one in at_work.held(tx, now) if _holds(one, now)]:
        raise Refused(
            f"{_listed('reservation', held)} active (a direct call, `headway hold`): let them end, or release them"
        )
    if sent := at_work.being_sent(tx, now):
        raise Refused(
            f"{_listed('delivery', sent, 'deliveries')} being sent: stop `headway up`, or try again in a minute"
        )
    running = sorted(row[0] for row in tx.run("running_jobs"))
    if running:
        raise Refused(
            f"{_listed('job', running)} RUNNING, left by a worker that died: start `headway up --roles api`, which"
            " recovers what is lost, stop it, and try again"
        )


def _holds(one: Held, now: int) -> bool:
    return (one.expires_at is not None and one.expires_at > now) or (one.caller is not None and lives(one.caller))


def _listed(noun: str, ids: list[int], nouns: str | None = None) -> str:
    """`job 7 is`, `jobs 7, 8, 9 and 2 more are`"""
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    numbers = ", ".join(map(str, ids[:SHOWN]))
    return f"{noun} {numbers} is" if len(ids) == 1 else f"{nouns or f'{noun}s'} {numbers}{more} are"

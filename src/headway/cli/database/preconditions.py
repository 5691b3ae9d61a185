"""Refuses to replace or move a database while work is going on in it."""

from __future__ import annotations

from headway.engine.client.limits import lives, living
from headway.errors import Refused
from headway.store.db import Tx
from headway.store.transfer import activity
from headway.store.transfer.activity import ActiveReservationRow

SHOWN = 3


def refuse_workers(tx: Tx) -> None:
    """Refuses if a worker is alive."""
    alive = living(tx)
    if alive:
        where = ", ".join(f"pid {worker.pid} on {worker.host}" for worker in alive[:SHOWN])
        workers = "1 worker is" if len(alive) == 1 else f"{len(alive)} workers are"
        raise Refused(f"{workers} alive ({where})", hint="stop them first")


def refuse_work(tx: Tx) -> None:
    """Refuses if a worker is alive, a reservation active, a webhook being sent, or a job RUNNING."""
    refuse_workers(tx)
    now = tx.now()
    if held := [reservation.id for reservation in activity.held(tx, now) if _holds(reservation, now)]:
        raise Refused(
            f"{_listed('reservation', held)} active (a direct call, `headway hold`)",
            hint="wait for the end, or release it",
        )
    if sent := activity.being_sent(tx, now):
        raise Refused(
            f"{_listed('delivery', sent, 'deliveries')} being sent", hint="stop `headway up`, or try again in a minute"
        )
    running = sorted(row[0] for row in tx.run("running_jobs"))
    if running:
        raise Refused(
            f"{_listed('job', running)} RUNNING, left by a dead worker",
            hint="start `headway up --roles api`, which recovers lost jobs, stop it, and try again",
        )


def _holds(row: ActiveReservationRow, now: int) -> bool:
    return (row.expires_at is not None and row.expires_at > now) or (row.caller is not None and lives(row.caller))


def _listed(noun: str, ids: list[int], nouns: str | None = None) -> str:
    """Returns a list with its verb: `job 7 is`, `jobs 7, 8, 9 and 2 more are`."""
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    numbers = ", ".join(map(str, ids[:SHOWN]))
    return f"{noun} {numbers} is" if len(ids) == 1 else f"{nouns or f'{noun}s'} {numbers}{more} are"

"""Reservations in the local database, as the API's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headway.api.schemas.queue import reservation_json
from headway.cli.backend.base import fill
from headway.cli.output import Json
from headway.model.jobs.job import Reservation
from headway.store.db import Tx
from headway.store.queue import reservations

if TYPE_CHECKING:
    from headway.cli.backend.local import LocalBackend


class LocalReservations:
    """Reservations of the tenant in the local database."""

    def __init__(self, backend: LocalBackend) -> None:
        self.backend = backend

    def page(self, status: str | None, limit: int, cursor: str | None) -> Json:
        def read(count: int, cursor: str | None) -> Json:
            with self.backend.read() as tx:
                page = reservations.listed(tx, self.backend.tenant_id, status=status, limit=count, cursor=cursor)
                return {"items": _shown(tx, page.items), "next": page.next}

        return fill(read, limit, cursor)

    def get(self, number: int) -> Json:
        return self._one(self.backend.client.reservation(number))

    def release(self, number: int) -> Json:
        return self._one(self.backend.client.release_reservation(number))

    def _one(self, found: Reservation) -> Json:
        with self.backend.read() as tx:
            return _shown(tx, [found])[0]


def _shown(tx: Tx, found: Sequence[Reservation]) -> list[Json]:
    return [
        reservation_json(reservation, lanes=lanes, target=target)
        for reservation, lanes, target in reservations.named(tx, found)
    ]

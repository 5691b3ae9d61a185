"""`/api/reservations`: reserves slots for outside programs; records direct calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import Query, Response

from headway.api.http.query import Cursor, Id, Limit
from headway.api.http.routing import Here, RequestContext, Routes, answer
from headway.api.schemas.common import Body, Json, PageSchema
from headway.api.schemas.queue import NewReservationBody, ReservationSchema, reservation_json
from headway.model.jobs.job import Reservation
from headway.store.queue import reservations

routes = Routes("reservations")


@routes.post("/api/reservations", answer=ReservationSchema, status=201, creates=True)
def create(here: Here, body: NewReservationBody) -> Response:
    """Reserve the next slot of some resources, of a target, or of both; without them, of the policy's lane.

    The slot is held from `granted_at` on; renew the reservation before its ttl ends.
    """
    given = body.given()
    return here.make_once(lambda client: client.reserve(**given), lambda made: _answer(here, made, 201), given)


@routes.get("/api/reservations", answer=PageSchema[ReservationSchema])
def ls(
    here: Here,
    status: Annotated[Literal["ACTIVE", "RELEASED", "EXPIRED"] | None, Query()] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List reservations and direct calls, the newest first."""
    with here.look() as tx:
        page = reservations.listed(tx, here.tenant_id, status=status, limit=limit, cursor=cursor)
    return answer({"items": _shown(here, page.items), "next": page.next})


@routes.get("/api/reservations/{reservation_id}", answer=ReservationSchema)
def show(here: Here, reservation_id: Id) -> Response:
    """Show a reservation."""
    return _answer(here, here.client.reservation(reservation_id))


@routes.post("/api/reservations/{reservation_id}/renew", answer=ReservationSchema)
def renew(here: Here, reservation_id: Id, body: Body | None = None) -> Response:
    """Renew a reservation for another ttl."""
    return _answer(here, here.client.renew_reservation(reservation_id))


@routes.delete("/api/reservations/{reservation_id}", answer=ReservationSchema, matches=False)
def release(here: Here, reservation_id: Id) -> Response:
    """Release a reservation."""
    return _answer(here, here.client.release_reservation(reservation_id))


def _answer(here: RequestContext, one: Reservation, status: int = 200) -> Response:
    headers = {"Location": here.address(f"/api/reservations/{one.id}")} if status == 201 else {}
    return answer(_shown(here, [one])[0], status, **headers)


def _shown(here: RequestContext, found: Sequence[Reservation]) -> list[Json]:
    with here.look() as tx:
        named = reservations.named(tx, found)
    return [reservation_json(one, lanes=lanes, target=target) for one, lanes, target in named]

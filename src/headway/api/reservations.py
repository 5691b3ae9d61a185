"""`/api/reservations`: the next slot of resources and targets for programs outside, and the record of direct calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import Query, Response

from headway.api.asking import Cursor, Id, Limit
from headway.api.routes import Here, Routes, Visit, answer
from headway.api.wire import answers, answers_lanes, bodies, bodies_lanes
from headway.api.wire.jobs import Json
from headway.api.wire.lanes import reservation_json
from headway.model.job import Reservation
from headway.store import reservations

routes = Routes("reservations")


@routes.post("/api/reservations", answer=answers_lanes.Reservation, status=201, creates=True)
def create(here: Here, body: bodies_lanes.NewReservation) -> Response:
    """Reserve the next slot of some resources, of a target, or of both. It is yours from `granted_at` on: renew it."""
    given = body.given()
    return here.make_once(lambda client: client.reserve(**given), lambda made: _answer(here, made, 201), given)


@routes.get("/api/reservations", answer=answers.Page[answers_lanes.Reservation])
def ls(
    here: Here,
    status: Annotated[Literal["ACTIVE", "RELEASED", "EXPIRED"] | None, Query()] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List reservations, direct calls too, the newest first."""
    with here.look() as tx:
        page = reservations.listed(tx, here.tenant_id, status=status, limit=limit, cursor=cursor)
    return answer({"items": _shown(here, page.items), "next": page.next})


@routes.get("/api/reservations/{reservation_id}", answer=answers_lanes.Reservation)
def show(here: Here, reservation_id: Id) -> Response:
    """Show a reservation."""
    return _answer(here, here.client.reservation(reservation_id))


@routes.post("/api/reservations/{reservation_id}/renew", answer=answers_lanes.Reservation)
def renew(here: Here, reservation_id: Id, body: bodies.Body | None = None) -> Response:
    """Keep a reservation for another ttl."""
    return _answer(here, here.client.renew_reservation(reservation_id))


@routes.delete("/api/reservations/{reservation_id}", answer=answers_lanes.Reservation, matches=False)
def release(here: Here, reservation_id: Id) -> Response:
    """Give a reservation back."""
    return _answer(here, here.client.release_reservation(reservation_id))


def _answer(here: Visit, one: Reservation, status: int = 200) -> Response:
    headers = {"Location": here.address(f"/api/reservations/{one.id}")} if status == 201 else {}
    return answer(_shown(here, [one])[0], status, **headers)


def _shown(here: Visit, found: Sequence[Reservation]) -> list[Json]:
    with here.look() as tx:
        named = reservations.named(tx, found)
    return [reservation_json(one, lanes=lanes, target=target) for one, lanes, target in named]

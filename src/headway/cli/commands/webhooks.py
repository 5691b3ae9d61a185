"""Shows and changes webhooks and their deliveries.

Commands: `webhooks ls`, `show`, `create`, `edit`, `delete`, `test`, `rotate`, `secret`, `deliveries`, `tries`,
`replay`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands.jobs import Cursor, Limit
from headway.cli.commands.schedules import Deleted

if TYPE_CHECKING:
    from headway.cli.backend.base import Backend
    from headway.cli.output import Json

webhooks = family("List, create, change and test webhooks, and list and replay their deliveries.")
Number = Annotated[int, typer.Argument(metavar="ID", help="Number of the webhook.", show_default=False)]
DeliveryNumber = Annotated[int, typer.Argument(metavar="DELIVERY", help="Number of the delivery.", show_default=False)]
Events = Annotated[
    list[str],
    typer.Option("--event", metavar="NAME", help="Only these events: job.run.failed, or job.*; may be repeated."),
]
Description = Annotated[str | None, typer.Option(metavar="TEXT", help="Purpose of the webhook.")]
MaxTries = Annotated[int | None, typer.Option(metavar="1..20", help="Maximum tries of a delivery (default: 4).")]
NONE: list[str] = []
LOOK_SECONDS = 0.1


@command(webhooks, "ls")
def ls(call: Invocation, limit: Limit = 20, cursor: Cursor = None, deleted: Deleted = False) -> None:
    """List webhooks, the oldest first."""
    from headway.cli.tables.webhooks import endpoint_table

    create = "create one: headway webhooks create https://example.org/hook --event 'job.run.*'"
    with call.backend() as backend:
        page = backend.webhooks.page(limit, cursor, deleted=deleted)
    call.out.page(page, endpoint_table, empty=("no webhooks yet", create))


@command(webhooks, "show")
def show(call: Invocation, number: Number) -> None:
    """Show a webhook with its history, without its secret."""
    from headway.cli.tables.events import event_table
    from headway.cli.tables.webhooks import endpoint_page

    with call.backend() as backend:
        endpoint, now = backend.webhooks.shown(number), backend.now()
    call.out.answer(endpoint, lambda: [endpoint_page(endpoint, now), "", event_table(endpoint["events_of"], now)])


def _answer(call: Invocation, endpoint: Json, outcome: str, *, secret: bool = False) -> None:
    lines = [f"webhook {endpoint['webhook_id']} {outcome}: {endpoint['url']}"]
    stored = ["this is its secret: store it now, it is not shown again"]
    if secret:
        lines.append(endpoint["secret"] or "")
    call.out.answer(endpoint, lambda: lines, notes=stored if secret else [])


@command(webhooks, "create")
def create(
    call: Invocation,
    url: Annotated[str, typer.Argument(metavar="URL", help="Address, http or https.", show_default=False)],
    event: Events = NONE,
    description: Description = None,
    max_tries: MaxTries = None,
    secret: Annotated[
        str | None,
        typer.Option(metavar="whsec_…|-", help="Existing secret; - reads stdin (default: a new one is generated)."),
    ] = None,
) -> None:
    """Create a webhook that receives events from now on; without --event all of them."""
    import sys

    given = sys.stdin.read().strip() if secret == "-" else secret
    options: dict[str, Any] = {"description": description, "secret": given}
    with call.backend() as backend:
        if max_tries is not None:
            options["max_tries"] = max_tries
        _answer(call, backend.webhooks.create(url, events=event, **options), "created", secret=True)


@command(webhooks, "edit")
def edit(
    call: Invocation,
    number: Number,
    url: Annotated[str | None, typer.Option(metavar="URL", help="New address.")] = None,
    event: Events = NONE,
    every_event: Annotated[bool, typer.Option("--every-event", help="Send all events.")] = False,
    description: Description = None,
    max_tries: MaxTries = None,
    enable: Annotated[bool, typer.Option("--enable", help="Enable it and close its circuit breaker.")] = False,
    disable: Annotated[bool, typer.Option("--disable", help="Disable it: send no deliveries.")] = False,
) -> None:
    """Change a webhook. A new address also applies to pending deliveries."""
    from headway.errors import BadInput

    events = [] if every_event else event or None
    if every_event and event:
        raise BadInput("--every-event and --event exclude each other: remove one of them", field="every_event")
    if enable and disable:
        raise BadInput("--enable and --disable exclude each other: remove one of them", field="enable")
    enabled = enable if enable or disable else None
    given = {"url": url, "events": events, "description": description, "max_tries": max_tries, "enabled": enabled}
    changes: dict[str, Any] = {name: option for name, option in given.items() if option is not None}
    if not changes:
        raise BadInput("no change given: give an option, see `headway webhooks edit --help`")
    with call.backend() as backend:
        _answer(call, backend.webhooks.edit(number, **changes), "changed")


@command(webhooks, "delete")
def delete(call: Invocation, number: Number) -> None:
    """Delete a webhook. Its pending deliveries are given up."""
    with call.backend() as backend:
        _answer(call, backend.webhooks.delete(number), "deleted")


@command(webhooks, "rotate")
def rotate(call: Invocation, number: Number) -> None:
    """Generate a new secret for a webhook. For a day deliveries are signed with the old secret too."""
    with call.backend() as backend:
        _answer(call, backend.webhooks.rotate(number), "has a new secret", secret=True)


@command(webhooks, "secret")
def secret(
    call: Invocation,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Generate a new secret; the old one still signs for a day.")
    ] = False,
) -> None:
    """Show the secret that signs deliveries to the webhook_url of jobs."""
    with call.backend() as backend:
        text = backend.webhooks.secret(rotate=rotate)
    call.out.answer(text, lambda: [text["secret"]])


# --- deliveries ---------------------------------------------------------------------------------------------------


@command(webhooks, "test")
def send_test(
    call: Invocation,
    number: Number,
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="Longest time to wait for the first try.")] = 20.0,
) -> int:
    """Send a webhook.test event and print the outcome of its first try. Exits 1 if the try failed."""
    with call.backend() as backend:
        ended = _await(backend, backend.webhooks.test(number)["delivery_id"], wait)
    call.out.answer(ended, lambda: [_outcome(ended)], notes=_next_step(ended))
    return 0 if ended["status"] == "DELIVERED" or ended["last_error"] is None else 1


def _await(backend: Backend, number: int, seconds: float) -> Json:
    """Waits until a delivery was tried once, or the time is over; returns it."""
    deadline = time.monotonic() + seconds
    while True:
        delivery = backend.webhooks.delivery(number)
        if delivery["tries"] or delivery["status"] != "PENDING" or time.monotonic() >= deadline:
            return delivery
        time.sleep(LOOK_SECONDS)


def _outcome(delivery: Json) -> str:
    name = f"delivery {delivery['delivery_id']}"
    if delivery["status"] == "DELIVERED":
        return f"{name} arrived: {delivery['last_status_code']}"
    if delivery["last_error"] is not None:
        return f"{name} did not arrive: {delivery['last_error']}"
    return f"{name} was sent" if delivery["next_try_at"] is None else f"{name} is pending"


def _next_step(delivery: Json) -> Iterator[str]:
    """Yields what happens next to a delivery that has not arrived."""
    see = f"see `headway webhooks tries {delivery['delivery_id']}`"
    if delivery["status"] == "DELIVERED":
        return
    if delivery["last_error"] is not None:
        if delivery["status"] == "PENDING":
            yield f"it will be tried again: {see}"
    elif delivery["next_try_at"] is None:
        yield f"the receiver has not answered yet: {see}"
    else:
        yield "no process has sent it yet: start one with the role scheduler (`headway up`)"


@command(webhooks, "deliveries")
def deliveries(
    call: Invocation,
    number: Annotated[
        int | None, typer.Argument(metavar="[ID]", help="Number of the webhook.", show_default=False)
    ] = None,
    job: Annotated[int | None, typer.Option(metavar="JOB", help="Deliveries about this job, to any address.")] = None,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="Only PENDING, DELIVERED or FAILED deliveries.")
    ] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List the deliveries to a webhook or about a job, the newest first."""
    from headway.cli.tables.webhooks import delivery_table
    from headway.errors import BadInput

    if (number is None) == (job is None):
        raise BadInput("deliveries are listed by webhook or by job: give either a webhook number or --job")
    wanted = None if status is None else status.upper()
    with call.backend() as backend:
        page = backend.webhooks.deliveries(limit, cursor, webhook=number, job=job, status=wanted)
        now = backend.now()
    call.out.page(page, lambda found: delivery_table(found, now), empty=["no deliveries yet"])


@command(webhooks, "tries")
def tries(call: Invocation, number: DeliveryNumber) -> None:
    """Show a delivery and the outcome of each try, with the beginning of each answer."""
    from headway.cli.tables.webhooks import delivery_page, try_table

    with call.backend() as backend:
        delivery, now = backend.webhooks.tries(number), backend.now()
    again = [f"to send it once more: headway webhooks replay {number}"] if delivery["status"] == "FAILED" else []
    call.out.answer(delivery, lambda: [delivery_page(delivery, now), "", try_table(delivery["log"], now)], notes=again)


@command(webhooks, "replay")
def replay(call: Invocation, number: DeliveryNumber) -> None:
    """Send the message of an ended delivery once more, as a new delivery."""
    with call.backend() as backend:
        again = backend.webhooks.replay(number)
    call.out.answer(again, lambda: [f"delivery {number} is sent again as delivery {again['delivery_id']}"])

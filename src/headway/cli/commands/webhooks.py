"""Shows and changes webhooks and their deliveries.

Commands: `webhooks ls`, `show`, `create`, `edit`, `delete`, `test`, `rotate`, `secret`, `deliveries`, `tries`,
`replay`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands.jobs import Cursor, Limit, more

if TYPE_CHECKING:
    from headway.cli.command import Desk
    from headway.model.webhooks.webhook import Delivery, Endpoint

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
def ls(call: Invocation, limit: Limit = 20, cursor: Cursor = None) -> None:
    """List webhooks, the oldest first."""
    from headway.api.schemas.webhooks import endpoint_json
    from headway.cli.tables.webhooks import endpoint_table
    from headway.store.paging import check_limit, make_cursor, read_cursor

    after = 0 if cursor is None else read_cursor(cursor)
    with call.desk() as desk:
        found = desk.client.webhooks.list(after=after, limit=check_limit(limit) + 1)
    shown = found[:limit]
    rest = make_cursor(shown[-1].id) if len(found) > limit else None
    if call.out.as_json:
        call.out.data({"items": [endpoint_json(endpoint) for endpoint in shown], "next": rest})
    elif not shown:
        call.out.say("no webhooks yet")
        call.out.say("create one: headway webhooks create https://example.org/hook --event 'job.run.*'")
    else:
        call.out.show(endpoint_table(shown))
        more(call, rest)


@command(webhooks, "show")
def show(call: Invocation, number: Number) -> None:
    """Show a webhook with its history, without its secret."""
    from headway.api.schemas.jobs import event_json
    from headway.api.schemas.webhooks import endpoint_json
    from headway.cli.tables.jobs import event_table
    from headway.cli.tables.webhooks import endpoint_page

    with call.desk() as desk:
        endpoint, events = desk.shown_webhook(number)
        now = desk.now()
    if call.out.as_json:
        call.out.data({**endpoint_json(endpoint), "events_of": [event_json(event) for event in events]})
    else:
        call.out.show(endpoint_page(endpoint, now), "", event_table(events, now))


def _answer(call: Invocation, endpoint: Endpoint, said: str, *, secret: bool = False) -> None:
    from headway.api.schemas.webhooks import endpoint_json

    if call.out.as_json:
        call.out.data(endpoint_json(endpoint, secret=secret))
        return
    call.out.show(f"webhook {endpoint.id} {said}: {endpoint.url}")
    if secret:
        call.out.show(endpoint.secret)
        call.out.say("this is its secret: store it now, it is not shown again")


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
    wishes: dict[str, Any] = {"description": description, "secret": given}
    with call.desk() as desk:
        if max_tries is not None:
            wishes["max_tries"] = max_tries
        _answer(call, desk.client.webhooks.create(url, event, **wishes), "created", secret=True)


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
    changes: dict[str, Any] = {name: wish for name, wish in given.items() if wish is not None}
    if not changes:
        raise BadInput("no change given: give an option, see `headway webhooks edit --help`")
    with call.desk() as desk:
        _answer(call, desk.client.webhooks.edit(number, **changes), "changed")


@command(webhooks, "delete")
def delete(call: Invocation, number: Number) -> None:
    """Delete a webhook. Its pending deliveries are given up."""
    with call.desk() as desk:
        _answer(call, desk.client.webhooks.delete(number), "deleted")


@command(webhooks, "rotate")
def rotate(call: Invocation, number: Number) -> None:
    """Generate a new secret for a webhook. For a day deliveries are signed with the old secret too."""
    with call.desk() as desk:
        _answer(call, desk.client.webhooks.rotate(number), "has a new secret", secret=True)


@command(webhooks, "secret")
def secret(
    call: Invocation,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Generate a new secret; the old one still signs for a day.")
    ] = False,
) -> None:
    """Show the secret that signs deliveries to the webhook_url of jobs."""
    with call.desk() as desk:
        text = desk.client.webhooks.rotate_secret() if rotate else desk.client.webhooks.secret()
    if call.out.as_json:
        call.out.data({"secret": text})
    else:
        call.out.show(text)


# --- deliveries ---------------------------------------------------------------------------------------------------


@command(webhooks, "test")
def send_test(
    call: Invocation,
    number: Number,
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="Longest time to wait for the first try.")] = 20.0,
) -> int:
    """Send a webhook.test event and print the outcome of its first try. Exits 1 if the try failed."""
    with call.desk() as desk:
        made = desk.client.webhooks.test(number)
        ended = _await(desk, made.id, wait)
    return _report(call, ended)


def _await(desk: Desk, number: int, seconds: float) -> Delivery:
    """Waits until a delivery was tried once, or the time is over; returns it."""
    deadline = time.monotonic() + seconds
    while True:
        delivery = desk.client.webhooks.delivery(number)
        if delivery.tries or delivery.status != "PENDING" or time.monotonic() >= deadline:
            return delivery
        time.sleep(LOOK_SECONDS)


def _report(call: Invocation, delivery: Delivery) -> int:
    from headway.api.schemas.webhooks import delivery_json

    if call.out.as_json:
        call.out.data(delivery_json(delivery))
    elif delivery.status == "DELIVERED":
        call.out.show(f"delivery {delivery.id} arrived: {delivery.last_status_code}")
    elif delivery.last_error is not None:
        call.out.show(f"delivery {delivery.id} did not arrive: {delivery.last_error}")
        if delivery.status == "PENDING":
            call.out.say(f"it will be tried again: see `headway webhooks tries {delivery.id}`")
    elif delivery.next_try_at is None:
        call.out.show(f"delivery {delivery.id} was sent")
        call.out.say(f"the receiver has not answered yet: see `headway webhooks tries {delivery.id}`")
    else:
        call.out.show(f"delivery {delivery.id} is pending")
        call.out.say("no process has sent it yet: start one with the role scheduler (`headway up`)")
    return 0 if delivery.status == "DELIVERED" or delivery.last_error is None else 1


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
    from headway.api.schemas.webhooks import delivery_json
    from headway.cli.tables.webhooks import delivery_table
    from headway.errors import BadInput

    if (number is None) == (job is None):
        raise BadInput("deliveries are listed by webhook or by job: give either a webhook number or --job")
    wishes = {"webhook": number, "job": job, "status": None if status is None else status.upper()}
    with call.desk() as desk:
        page = desk.client.webhooks.deliveries(limit=limit, cursor=cursor, **wishes)  # type: ignore[arg-type]
        now = desk.now()
    if call.out.as_json:
        call.out.data({"items": [delivery_json(delivery) for delivery in page.items], "next": page.next})
    elif not page.items:
        call.out.say("no deliveries yet")
    else:
        call.out.show(delivery_table(page.items, now))
        more(call, page.next)


@command(webhooks, "tries")
def tries(call: Invocation, number: DeliveryNumber) -> None:
    """Show a delivery and the outcome of each try, with the beginning of each answer."""
    from headway.api.schemas.webhooks import delivery_json, try_json
    from headway.cli.tables.webhooks import delivery_page, try_table

    with call.desk() as desk:
        delivery = desk.client.webhooks.delivery(number)
        tried = desk.client.webhooks.tries(number)
        now = desk.now()
    if call.out.as_json:
        log = [try_json(attempt) for attempt in tried]
        call.out.data({**delivery_json(delivery), "body": delivery.body, "log": log})
        return
    call.out.show(delivery_page(delivery, now), "", try_table(tried, now))
    if delivery.status == "FAILED":
        call.out.say(f"to send it once more: headway webhooks replay {delivery.id}")


@command(webhooks, "replay")
def replay(call: Invocation, number: DeliveryNumber) -> None:
    """Send the message of an ended delivery once more, as a new delivery."""
    from headway.api.schemas.webhooks import delivery_json

    with call.desk() as desk:
        again = desk.client.webhooks.replay(number)
    if call.out.as_json:
        call.out.data(delivery_json(again))
    else:
        call.out.show(f"delivery {number} is sent again as delivery {again.id}")

"""Webhooks, who is told of what happens: `webhooks ls`, `show`, `create`, `edit`, `delete`, `test`, `rotate`, `secret`,
`deliveries`, `tries`, `replay`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.call import Call, command, family
from headway.cli.jobs import Cursor, Limit, more

if TYPE_CHECKING:
    from headway.cli.call import Desk
    from headway.model.webhooks import Delivery, Endpoint

webhooks = family("Tell others of what happens: webhooks, what is on its way to them, and how it went.")
Number = Annotated[int, typer.Argument(metavar="ID", help="A webhook by its number.", show_default=False)]
DeliveryNumber = Annotated[
    int, typer.Argument(metavar="DELIVERY", help="A delivery by its number.", show_default=False)
]
Events = Annotated[
    list[str], typer.Option("--event", metavar="NAME", help="Only these: job.run.failed, or job.*; may be repeated.")
]
Description = Annotated[str | None, typer.Option(metavar="TEXT", help="What it is for.")]
MaxTries = Annotated[int | None, typer.Option(metavar="1..20", help="How often each delivery is tried. Default: 4.")]
NONE: list[str] = []
LOOK_SECONDS = 0.1


@command(webhooks, "ls")
def ls(call: Call, limit: Limit = 20, cursor: Cursor = None) -> None:
    """List webhooks, the oldest first."""
    from headway.api.wire.hooks import endpoint_json
    from headway.cli.hook_tables import endpoint_table
    from headway.store.pages import check_limit, make_cursor, read_cursor

    after = 0 if cursor is None else read_cursor(cursor)
    with call.desk() as desk:
        found = desk.client.webhooks.list(after=after, limit=check_limit(limit) + 1)
    shown = found[:limit]
    rest = make_cursor(shown[-1].id) if len(found) > limit else None
    if call.out.as_json:
        call.out.data({"items": [endpoint_json(one) for one in shown], "next": rest})
    elif not shown:
        call.out.say("no webhooks yet")
        call.out.say("make one: headway webhooks create https://example.org/hook --event 'job.run.*'")
    else:
        call.out.show(endpoint_table(shown))
        more(call, rest)


@command(webhooks, "show")
def show(call: Call, number: Number) -> None:
    """Show everything about a webhook but its secret, with its history."""
    from headway.api.wire.hooks import endpoint_json
    from headway.api.wire.jobs import event_json
    from headway.cli.hook_tables import endpoint_page
    from headway.cli.tables import event_table

    with call.desk() as desk:
        one, events = desk.shown_webhook(number)
        now = desk.now()
    if call.out.as_json:
        call.out.data({**endpoint_json(one), "events_of": [event_json(event) for event in events]})
    else:
        call.out.show(endpoint_page(one, now), "", event_table(events, now))


def _answer(call: Call, one: Endpoint, said: str, *, secret: bool = False) -> None:
    from headway.api.wire.hooks import endpoint_json

    if call.out.as_json:
        call.out.data(endpoint_json(one, secret=secret))
        return
    call.out.show(f"webhook {one.id} {said}: {one.url}")
    if secret:
        call.out.show(one.secret)
        call.out.say("this is its secret: keep it now, it is not shown again")


@command(webhooks, "create")
def create(
    call: Call,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to send: http or https.", show_default=False)],
    event: Events = NONE,
    description: Description = None,
    max_tries: MaxTries = None,
    secret: Annotated[
        str | None, typer.Option(metavar="whsec_…|-", help="Its secret, if it has one; - reads stdin. Default: made.")
    ] = None,
) -> None:
    """Tell somebody of what happens from now on. Without --event: of everything."""
    import sys

    given = sys.stdin.read().strip() if secret == "-" else secret
    wishes: dict[str, Any] = {"description": description, "secret": given}
    with call.desk() as desk:
        if max_tries is not None:
            wishes["max_tries"] = max_tries
        _answer(call, desk.client.webhooks.create(url, event, **wishes), "made", secret=True)


@command(webhooks, "edit")
def edit(
    call: Call,
    number: Number,
    url: Annotated[str | None, typer.Option(metavar="URL", help="Another address.")] = None,
    event: Events = NONE,
    every_event: Annotated[bool, typer.Option("--every-event", help="Tell it of everything.")] = False,
    description: Description = None,
    max_tries: MaxTries = None,
    enable: Annotated[bool, typer.Option("--enable", help="Send to it again.")] = False,
    disable: Annotated[bool, typer.Option("--disable", help="Send nothing to it.")] = False,
) -> None:
    """Change a webhook. Another address counts for what is on its way too."""
    from headway.errors import BadInput

    events = [] if every_event else event or None
    if every_event and event:
        raise BadInput("--every-event and --event contradict each other: leave one out", field="every_event")
    if enable and disable:
        raise BadInput("--enable and --disable contradict each other: leave one out", field="enable")
    enabled = enable if enable or disable else None
    given = {"url": url, "events": events, "description": description, "max_tries": max_tries, "enabled": enabled}
    changes: dict[str, Any] = {name: wish for name, wish in given.items() if wish is not None}
    if not changes:
        raise BadInput("edit what? Give an option: see `headway webhooks edit --help`")
    with call.desk() as desk:
        _answer(call, desk.client.webhooks.edit(number, **changes), "changed")


@command(webhooks, "delete")
def delete(call: Call, number: Number) -> None:
    """Send nothing more to a webhook. What was on its way is given up."""
    with call.desk() as desk:
        _answer(call, desk.client.webhooks.delete(number), "deleted")


@command(webhooks, "rotate")
def rotate(call: Call, number: Number) -> None:
    """Give a webhook another secret. For a day deliveries are signed with the old one too."""
    with call.desk() as desk:
        _answer(call, desk.client.webhooks.rotate(number), "has another secret", secret=True)


@command(webhooks, "secret")
def secret(
    call: Call,
    rotate: Annotated[bool, typer.Option("--rotate", help="Make another one; the old signs for a day.")] = False,
) -> None:
    """Show the secret that signs what goes to the webhook_url of jobs."""
    with call.desk() as desk:
        found = desk.client.webhooks.rotate_secret() if rotate else desk.client.webhooks.secret()
    if call.out.as_json:
        call.out.data({"secret": found})
    else:
        call.out.show(found)


# --- deliveries ---------------------------------------------------------------------------------------------------


@command(webhooks, "test")
def send_test(
    call: Call,
    number: Number,
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for what comes of it.")] = 20.0,
) -> int:
    """Send a webhook.test and say what came of it."""
    with call.desk() as desk:
        made = desk.client.webhooks.test(number)
        ended = _await(desk, made.id, wait)
    return _tell(call, ended)


def _await(desk: Desk, number: int, seconds: float) -> Delivery:
    """Until it was tried once."""
    deadline = time.monotonic() + seconds
    while True:
        found = desk.client.webhooks.delivery(number)
        if found.tries or found.status != "PENDING" or time.monotonic() >= deadline:
            return found
        time.sleep(LOOK_SECONDS)


def _tell(call: Call, one: Delivery) -> int:
    from headway.api.wire.hooks import delivery_json

    if call.out.as_json:
        call.out.data(delivery_json(one))
    elif one.status == "DELIVERED":
        call.out.show(f"delivery {one.id} arrived: {one.last_status_code}")
    elif one.last_error is not None:
        call.out.show(f"delivery {one.id} did not arrive: {one.last_error}")
        if one.status == "PENDING":
            call.out.say(f"it is tried again: headway webhooks tries {one.id}")
    elif one.next_try_at is None:
        call.out.show(f"delivery {one.id} was sent")
        call.out.say(f"the receiver has not answered yet: headway webhooks tries {one.id}")
    else:
        call.out.show(f"delivery {one.id} is on its way")
        call.out.say("nobody has sent it yet: is a process with the role scheduler running?")
    return 0 if one.status == "DELIVERED" or one.last_error is None else 1


@command(webhooks, "deliveries")
def deliveries(
    call: Call,
    number: Annotated[int | None, typer.Argument(metavar="[ID]", help="A webhook.", show_default=False)] = None,
    job: Annotated[int | None, typer.Option(metavar="JOB", help="What was sent about a job, to anybody.")] = None,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="Only PENDING, DELIVERED or FAILED ones.")
    ] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List what went, or goes, to a webhook, or about a job: newest first."""
    from headway.api.wire.hooks import delivery_json
    from headway.cli.hook_tables import delivery_table
    from headway.errors import BadInput

    if (number is None) == (job is None):
        raise BadInput("deliveries of what? Name a webhook, or a job with --job")
    wishes = {"webhook": number, "job": job, "status": None if status is None else status.upper()}
    with call.desk() as desk:
        page = desk.client.webhooks.deliveries(limit=limit, cursor=cursor, **wishes)  # type: ignore[arg-type]
        now = desk.now()
    if call.out.as_json:
        call.out.data({"items": [delivery_json(one) for one in page.items], "next": page.next})
    elif not page.items:
        call.out.say("nothing was sent there yet")
    else:
        call.out.show(delivery_table(page.items, now))
        more(call, page.next)


@command(webhooks, "tries")
def tries(call: Call, number: DeliveryNumber) -> None:
    """Show a delivery and how each of its tries went, with the beginning of each answer."""
    from headway.api.wire.hooks import delivery_json, try_json
    from headway.cli.hook_tables import delivery_page, try_table

    with call.desk() as desk:
        one = desk.client.webhooks.delivery(number)
        found = desk.client.webhooks.tries(number)
        now = desk.now()
    if call.out.as_json:
        call.out.data({**delivery_json(one), "body": one.body, "log": [try_json(tried) for tried in found]})
        return
    call.out.show(delivery_page(one, now), "", try_table(found, now))
    if one.status == "FAILED":
        call.out.say(f"to send it once more: headway webhooks replay {one.id}")


@command(webhooks, "replay")
def replay(call: Call, number: DeliveryNumber) -> None:
    """Send a delivery that has ended once more: the same message, as a new delivery."""
    from headway.api.wire.hooks import delivery_json

    with call.desk() as desk:
        again = desk.client.webhooks.replay(number)
    if call.out.as_json:
        call.out.data(delivery_json(again))
    else:
        call.out.show(f"delivery {number} goes out again: delivery {again.id}")

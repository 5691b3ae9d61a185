"""Webhooks: creating and changing them, and their deliveries with all attempts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response

from headway import errors
from headway.dashboard import form_tokens
from headway.dashboard.flash import DONE, FlashMessage
from headway.dashboard.page import Form, PageRequest, Pages
from headway.engine.client.webhooks import STATUSES
from headway.model.access.permissions import Role
from headway.model.jobs.job import Actor
from headway.model.values.names import whole
from headway.model.webhooks import webhook as model
from headway.model.webhooks.webhook import Delivery, Endpoint, Try
from headway.store.jobs import views as job_views
from headway.store.paging import Page, make_cursor, read_cursor
from headway.store.webhooks import delivery_views, endpoints
from headway.text.webhooks import came_of_test, not_again, standing, what_next

pages = Pages("webhooks")
LISTED, LATEST, REMEMBERED = 50, 10, 20
TEST_SECONDS = 3.0


@pages.get("/webhooks")
def ls(page: PageRequest) -> Response:
    """With the last few deliveries of each."""
    cursor = page.asked.given("cursor")
    found = page.client.webhooks.list(after=0 if cursor is None else read_cursor(cursor), limit=LISTED + 1)
    shown = [page.shown(one) for one in found[:LISTED]]
    with page.read() as tx:
        latest = delivery_views.latest(tx, [one.id for one in shown], LATEST)
    rows = [(one, standing(one, page.now), json.loads(one.events), latest.get(one.id, [])) for one in shown]
    return page.render("webhooks.html", rows=rows, more=make_cursor(shown[-1].id) if len(found) > LISTED else None)


@pages.get("/webhooks/{number:int}")
def show(page: PageRequest, number: int) -> Response:
    one = page.shown(page.client.webhooks.get(number))
    log = _shown(page, page.client.webhooks.deliveries(webhook=number, **_filters(page), limit=LISTED))
    with page.read() as tx:
        recent = job_views.history(tx, "webhook", number, after=max(0, one.version - REMEMBERED))
    history = [(page.shown(event), Actor.parse(event.actor).shown) for event in reversed(recent)]
    facts = {"one": one, "how": standing(one, page.now), "events": json.loads(one.events), "history": history}
    return page.render("webhook.html", log=log, once=page.once, **_log_facts(page), **facts)


def _shown(page: PageRequest, log: Page[Delivery]) -> Page[Delivery]:
    return replace(log, items=[page.shown(delivery) for delivery in log.items])


def _filters(page: PageRequest) -> dict[str, Any]:
    asked = page.asked
    return {"status": asked.given("status"), "event": asked.given("event"), "cursor": asked.given("cursor")}


def _log_facts(page: PageRequest) -> dict[str, Any]:
    """Returns the filters of the delivery log."""
    narrow = any(page.asked.get(name) for name in ("status", "event", "cursor"))
    return {"statuses": STATUSES, "names": (*model.EVENTS, model.TEST), "narrow": narrow}


# --- making and changing ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filled:
    """The form of a webhook: its fields and the problem with one of them."""

    url: str = ""
    events: tuple[str, ...] = ()
    others: str = ""
    description: str = ""
    max_tries: str = str(model.MAX_TRIES)
    secret: str = ""
    problem: str = ""
    field: str = ""
    # The version it was filled in on; whether there is a newer one by now.
    seen: str = ""
    stale: bool = False

    def options(self) -> dict[str, Any]:
        """As the verbs take them."""
        more = [name.strip() for name in self.others.split(",") if name.strip()]
        return {
            "url": self.url,
            "events": [*self.events, *more],
            "description": self.description or None,
            "max_tries": whole(self.max_tries, field="max_tries", least=1, most=model.MOST_TRIES),
        }


def _of_form(form: Form, problem: errors.HeadwayError | None = None) -> Filled:
    texts = {name: form.get(name) for name in ("url", "others", "description", "max_tries", "secret")}
    filled = Filled(events=tuple(form.all("events")), seen=form.get("version"), stale=False, **texts)
    if problem is None:
        return filled
    field, stale = (problem.field or "").split("[")[0], problem.code == "version_mismatch"
    return replace(filled, problem=str(problem), field=field, stale=stale)


def _of_endpoint(one: Endpoint) -> Filled:
    names = json.loads(one.events)
    known = tuple(name for name in names if name in model.EVENTS)
    others = ", ".join(name for name in names if name not in model.EVENTS)
    return Filled(one.url, known, others, one.description or "", str(one.max_tries), seen=str(one.version))


@pages.get("/webhooks/new", Role.ADMIN)
def new(page: PageRequest) -> Response:
    return _editor(page, Filled())


def _editor(page: PageRequest, filled: Filled, one: Endpoint | None = None) -> Response:
    status = 422 if filled.problem else 200
    facts = {"known": model.EVENTS, "most": model.MOST_TRIES, "once": page.once}
    return page.render("webhook_edit.html", status=status, filled=filled, one=one, **facts)


@pages.post("/webhooks/new", Role.ADMIN)
def create(page: PageRequest) -> Response:
    """The secret is in this answer alone.

    Sent once more, the form makes nothing and shows nothing.
    """
    filled = _of_form(page.form)
    client = form_tokens.keyed(page)
    try:
        made = client.webhooks.create(**filled.options(), secret=filled.secret or None)
    except errors.BadInput as problem:
        return _editor(page, _of_form(page.form, problem))
    if client.replayed:
        text = f"Webhook {made.id} was created before. Its secret was shown once and is not shown again."
        return page.done(text, to=page.address(f"/webhooks/{made.id}"))
    return _shown_once(page, made.secret, one=made, title=f"Webhook {made.id} was made")


def _shown_once(page: PageRequest, secret: str, *, one: Endpoint | None, title: str) -> Response:
    response = page.render("webhook_secret.html", secret=secret, one=one, title=title)
    response.headers["Cache-Control"] = "no-store"
    return response


@pages.get("/webhooks/{number:int}/edit", Role.ADMIN)
def edit_form(page: PageRequest, number: int) -> Response:
    one = page.client.webhooks.get(number)
    return _editor(page, _of_endpoint(one), one)


@pages.post("/webhooks/{number:int}/edit", Role.ADMIN)
def edit(page: PageRequest, number: int) -> Response:
    one = page.client.webhooks.get(number)
    try:
        page.client.webhooks.edit(number, if_version=_version(page), **_of_form(page.form).options())
    except (errors.BadInput, errors.WrongState) as problem:
        return _editor(page, _of_form(page.form, problem), one)
    return page.done(f"Webhook {number} was changed.", to=page.address(f"/webhooks/{number}"))


def _version(page: PageRequest) -> int | None:
    """Returns the version that the form was shown with."""
    text = page.form.given("version")
    return None if text is None else whole(text, field="version")


@pages.post("/webhooks/{number:int}/enable", Role.ADMIN)
def enable(page: PageRequest, number: int) -> Response:
    page.client.webhooks.edit(number, enabled=True)
    return page.done(f"Webhook {number} is enabled.")


@pages.post("/webhooks/{number:int}/disable", Role.ADMIN)
def disable(page: PageRequest, number: int) -> Response:
    page.client.webhooks.edit(number, enabled=False)
    return page.done(f"Webhook {number} is disabled. Deliveries that were not sent yet are given up.")


@pages.post("/webhooks/{number:int}/delete", Role.ADMIN)
def delete(page: PageRequest, number: int) -> Response:
    page.client.webhooks.delete(number)
    text = f"Webhook {number} was deleted. Deliveries that were not sent yet are given up."
    return page.done(text, to=page.address("/webhooks"))


@pages.post("/webhooks/{number:int}/test", Role.ADMIN)
def send_test(page: PageRequest, number: int) -> Response:
    """Sends a test; reports its result if the receiver answers soon.

    Otherwise the log on the page shows it.
    """
    made = form_tokens.keyed(page).webhooks.test(number)
    tried = page.client.webhooks.first_try(made.id, TEST_SECONDS)
    return page.back(FlashMessage(came_of_test(tried), "not_arrived" if tried.last_error else DONE))


# --- secrets ------------------------------------------------------------------------------------------------------


@pages.get("/webhooks/{number:int}/rotate", Role.ADMIN)
def rotate_form(page: PageRequest, number: int) -> Response:
    one = page.client.webhooks.get(number)
    return page.render("webhook_rotate.html", one=one, seen=one.version, problem=None, filled="")


@pages.post("/webhooks/{number:int}/rotate", Role.ADMIN)
def rotate(page: PageRequest, number: int) -> Response:
    """Rotates the secret; a repeated form is refused, so that it rotates once."""
    given = page.form.given("secret")
    try:
        one = page.client.webhooks.rotate(number, secret=given, if_version=_version(page))
    except (errors.BadInput, errors.WrongState) as problem:
        facts = {"one": page.client.webhooks.get(number), "seen": page.form.get("version"), "filled": given or ""}
        return page.render("webhook_rotate.html", status=422, problem=problem, **facts)
    return _shown_once(page, one.secret, one=one, title=f"Webhook {number} has another secret")


@pages.get("/webhooks/secret", Role.ADMIN)
def own_secret(page: PageRequest) -> Response:
    return page.render("webhook_own.html")


@pages.post("/webhooks/secret", Role.ADMIN)
def show_own_secret(page: PageRequest) -> Response:
    """A form, because it makes the secret if there is none yet."""
    return _shown_once(page, page.client.webhooks.secret(), one=None, title="What goes to addresses of jobs is signed")


@pages.post("/webhooks/secret/rotate", Role.ADMIN)
def rotate_own_secret(page: PageRequest) -> Response:
    page.client.webhooks.rotate_secret()
    text = "The secret was replaced. For a day the old secret signs too."
    return page.done(text, to=page.address("/webhooks/secret"))


# --- deliveries ---------------------------------------------------------------------------------------------------


@pages.get("/deliveries")
def everything(page: PageRequest) -> Response:
    """Lists all deliveries, or those about one job."""
    text = page.asked.get("job").removeprefix("#")
    job = whole(text, field="job", least=1) if text else None
    verbs, requested = page.client.webhooks, {**_filters(page), "limit": LISTED}
    log = verbs.all_deliveries(**requested) if job is None else verbs.deliveries(job=job, **requested)
    return page.render("deliveries.html", job_id=job, log=_shown(page, log), **_log_facts(page))


@pages.get("/deliveries/{number:int}")
def show_delivery(page: PageRequest, number: int) -> Response:
    one, tries = page.shown(page.client.webhooks.delivery(number)), page.client.webhooks.tries(number)
    with page.read() as tx:
        found = endpoints.some(tx, [one.endpoint_id]).get(one.endpoint_id)
    endpoint = None if found is None else page.shown(found)
    return page.render(
        "delivery.html",
        one=one,
        endpoint=endpoint,
        how=None if endpoint is None else standing(endpoint, page.now),
        tries=[_try_row(page.shown(each)) for each in reversed(tries)],
        refusal=not_again(one, endpoint),
        once=page.once,
        next=what_next(one, endpoint, page.now),
    )


def _try_row(one: Try) -> tuple[Try, Mapping[str, Any], Mapping[str, Any] | None]:
    """A try with what was sent and what came back."""
    return one, json.loads(one.request), json.loads(one.response) if one.response else None


@pages.post("/deliveries/{number:int}/replay")
def replay(page: PageRequest, number: int) -> Response:
    again: Delivery = form_tokens.keyed(page).webhooks.replay(number)
    return page.done(
        f"Delivery {number} goes out again, as delivery {again.id}.", to=page.address(f"/deliveries/{again.id}")
    )

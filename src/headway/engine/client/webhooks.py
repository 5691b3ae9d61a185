"""The verbs on webhooks, each in one transaction.

A secret is shown once, when it is created.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headway.clock import micros
from headway.engine.client import idempotency
from headway.engine.webhooks.url_policy import refuse_closed
from headway.errors import BadInput, WrongState
from headway.model.webhooks import webhook as model
from headway.model.webhooks.webhook import Delivery, Endpoint, Try
from headway.store.db import Database, Tx
from headway.store.jobs import changes as jobs
from headway.store.paging import Page
from headway.store.webhooks import deliveries, delivery_views, endpoints, outbox

if TYPE_CHECKING:
    from headway.engine.client.client import Client

LOOK_SECONDS = 0.1
STATUSES = (model.PENDING, model.DELIVERED, model.FAILED)


class Webhooks:
    """The verbs on endpoints and deliveries, for one tenant and one actor."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @property
    def everybody(self) -> Database:
        """The database without row-level security, to count endpoints of all tenants."""
        return self.client.database.beyond()

    # --- endpoints ---

    def create(
        self,
        url: str,
        events: Sequence[str] = (),
        *,
        description: str | None = None,
        secret: str | None = None,
        max_tries: int = model.MAX_TRIES,
        enabled: bool = True,
    ) -> Endpoint:
        """Creates an endpoint that receives these events from now on.

        Its `secret` is shown only in this answer.
        """
        client = self.client
        fields = {
            "url": model.check_url(url),
            "events": json.dumps(model.check_events(events)),
            "description": model.check_description(description),
            "secret": new_secret() if secret is None else model.check_secret(secret),
            "max_tries": model.check_tries(max_tries),
        }
        refuse_closed(url, allow_private=client.allow_private)

        def work(tx: Tx) -> Endpoint:
            made = endpoints.insert(tx, client.tenant_id, actor=client.actor, **fields)
            tx.wake()
            return made if enabled else endpoints.save(tx, replace(made, enabled=0), "edited", client.actor)

        look = "headway webhooks ls"
        return outbox.armed(
            client.lanes.database,
            lambda: idempotency.create_once(
                client, "create_webhook", work, noun=Endpoint, look=look, database=self.everybody
            ),
        )

    def edit(self, number: int, *, if_version: int | None = None, **changes: Any) -> Endpoint:
        """Edits `url`, `events`, `description`, `max_tries` or `enabled`.

        Enabling an endpoint also closes its circuit breaker.
        """
        client, checked = self.client, _checked(changes)

        def work(tx: Tx) -> Endpoint:
            found = endpoints.lock(tx, client.tenant_id, number)
            endpoints.expect(found, if_version)
            requested = replace(found, **checked)
            if requested.url != found.url:
                refuse_closed(requested.url, allow_private=client.allow_private)
            if "enabled" in checked:
                requested = replace(requested, reason=None)
            if checked.get("enabled"):
                requested = replace(requested, failures=0, opened_at=None, probe_at=None)
            if requested == found:
                return found
            tx.wake()
            return endpoints.save(tx, requested, "edited", client.actor)

        return client.transact("edit_webhook", work, noun=Endpoint)

    def delete(self, number: int, *, if_version: int | None = None) -> Endpoint:
        """Deletes an endpoint; its pending deliveries are given up."""
        client = self.client

        def work(tx: Tx) -> Endpoint:
            found = endpoints.lock(tx, client.tenant_id, number)
            endpoints.expect(found, if_version)
            gone = endpoints.delete(tx, found, client.actor)
            tx.wake()
            return gone

        gone = client.transact("delete_webhook", work, noun=Endpoint, database=self.everybody)
        outbox.disarm(client.lanes.database)
        return gone

    def rotate(self, number: int, *, secret: str | None = None, if_version: int | None = None) -> Endpoint:
        """Replaces the secret.

        For a day the old one signs too, for receivers to change over.
        """
        client = self.client
        fresh = new_secret() if secret is None else model.check_secret(secret)

        def work(tx: Tx) -> Endpoint:
            found = endpoints.lock(tx, client.tenant_id, number)
            endpoints.expect(found, if_version)
            until = endpoints.now(tx) + micros(model.KEEPS_OLD_SECRET)
            requested = replace(found, secret=fresh, old_secret=found.secret, old_until=until)
            return endpoints.save(tx, requested, "rotated", client.actor)

        return idempotency.create_once(
            client, "rotate_webhook", work, noun=Endpoint, look=f"headway webhooks show {number}"
        )

    def test(self, number: int) -> Delivery:
        """Creates a delivery of `webhook.test` that is sent ahead of other deliveries."""
        client = self.client

        def work(tx: Tx) -> Delivery:
            found = endpoints.lock(tx, client.tenant_id, number)
            if not found.enabled:
                raise WrongState(f"webhook {number} is disabled", hint="enable it first", status="disabled")
            return deliveries.add_test(tx, endpoints.save(tx, found, "tested", client.actor), model.TEST)

        return idempotency.create_once(
            client, "test_webhook", work, noun=Delivery, look=f"headway webhooks deliveries {number}"
        )

    def first_try(self, number: int, seconds: float) -> Delivery:
        """Waits for the first attempt of a delivery, at most this long, and returns it."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.delivery(number)
            if found.tries or found.status != model.PENDING or time.monotonic() >= deadline:
                return found
            time.sleep(LOOK_SECONDS)

    def get(self, number: int, *, deleted: bool = False) -> Endpoint:
        """Returns a webhook; with `deleted` also a deleted one."""
        with self.client.database.read() as tx:
            return endpoints.find(tx, self.client.tenant_id, number, deleted=deleted)

    # --- for jobs with a webhook_url of their own ---

    def secret(self) -> str:
        """Returns the secret that signs deliveries to the `webhook_url` of jobs.

        It is created at the first request or delivery.
        """
        client, fresh = self.client, new_secret()
        with client.database.read() as tx:
            known = endpoints.signers(tx, [client.tenant_id])
        if client.tenant_id in known:
            return known[client.tenant_id].secret
        made = client.transact(
            "make_signer", lambda tx: endpoints.make_signer(tx, client.tenant_id, fresh), repeatable=True
        )
        return made.secret

    def rotate_secret(self) -> str:
        """Replaces that secret. For a day the old one signs too."""
        client, fresh = self.client, new_secret()
        made = client.transact(
            "rotate_signer", lambda tx: endpoints.rotate_signer(tx, client.tenant_id, fresh), repeatable=True
        )
        return made.secret

    # --- deliveries ---

    def deliveries(
        self,
        *,
        webhook: int | None = None,
        job: int | None = None,
        status: str | None = None,
        event: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Delivery]:
        """Returns the deliveries to one endpoint, or about one job, newest first."""
        if (webhook is None) == (job is None):
            raise BadInput("give either webhook or job", field="webhook")
        _check_status(status)
        tenant_id = self.client.tenant_id
        with self.client.database.read() as tx:
            if webhook is not None:
                endpoints.find(tx, tenant_id, webhook, deleted=True)
            if job is not None:
                jobs.find(tx, job, tenant_id)
            return delivery_views.page(
                tx, tenant_id, endpoint_id=webhook, job_id=job, status=status, event=event, limit=limit, cursor=cursor
            )

    def all_deliveries(
        self, *, status: str | None = None, event: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Delivery]:
        """Returns the deliveries of the tenant, newest first."""
        _check_status(status)
        with self.client.database.read() as tx:
            return delivery_views.page(
                tx, self.client.tenant_id, status=status, event=event, limit=limit, cursor=cursor
            )

    def delivery(self, number: int) -> Delivery:
        with self.client.database.read() as tx:
            return delivery_views.find(tx, self.client.tenant_id, number)

    def tries(self, number: int) -> list[Try]:
        """Returns the attempts of a delivery."""
        with self.client.database.read() as tx:
            return delivery_views.tries(tx, delivery_views.find(tx, self.client.tenant_id, number).id)

    def replay(self, number: int) -> Delivery:
        """Sends the same message, id and bytes again, as a new delivery."""
        client = self.client
        return idempotency.create_once(
            client,
            "replay_delivery",
            lambda tx: deliveries.replay(tx, client.tenant_id, number, client.actor),
            noun=Delivery,
            look="headway webhooks deliveries ID",
        )

    def list(self, *, after: int = 0, limit: int = 200, deleted: bool = False) -> list[Endpoint]:
        """Returns the webhooks, or the deleted ones."""
        with self.client.database.read() as tx:
            return endpoints.page(tx, self.client.tenant_id, after=after, limit=limit, deleted=deleted)


def _check_status(status: str | None) -> None:
    if status is not None and status not in STATUSES:
        raise BadInput(f"status must be one of {', '.join(STATUSES)}, not {status!r}", field="status")


def new_secret() -> str:
    return model.make_secret(secrets.token_bytes(32))


def _checked(changes: dict[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    for name, value in changes.items():
        match name:
            case "url":
                checked[name] = model.check_url(value)
            case "events":
                checked[name] = json.dumps(model.check_events(value))
            case "description":
                checked[name] = model.check_description(value)
            case "max_tries":
                checked[name] = model.check_tries(value)
            case "enabled" if isinstance(value, bool):
                checked[name] = int(value)
            case "enabled":
                raise BadInput("enabled must be true or false", field="enabled")
            case _:
                raise BadInput(f"{name}: a webhook has no such field", field=name)
    return checked

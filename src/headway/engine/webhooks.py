"""What people and programs do to webhooks: each verb one transaction. A secret is shown once, when it is made."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headway.clock import micros
from headway.engine.reach import refuse_closed
from headway.errors import BadInput, WrongState
from headway.model import webhooks as model
from headway.model.webhooks import Delivery, Endpoint, Try
from headway.store import deliveries, deliveries_reading, endpoints, jobs, outbox
from headway.store.db import Database, Tx
from headway.store.pages import Page

if TYPE_CHECKING:
    from headway.engine.client import Client

LOOK_SECONDS = 0.1
STATUSES = (model.PENDING, model.DELIVERED, model.FAILED)


class Webhooks:
    """The verbs on endpoints and deliveries, for one tenant and one actor."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @property
    def everybody(self) -> Database:
        """For what counts the endpoints of all tenants."""
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
        """Whoever answers at `url` is told of these events from now on. The answer's `secret` is shown this once."""
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

        return outbox.armed(client.lanes.database, lambda: self.everybody.transact("create_webhook", work))

    def edit(self, number: int, *, if_version: int | None = None, **changes: Any) -> Endpoint:
        """`url`, `events`, `description`, `max_tries`, `enabled`. To be enabled again also closes its breaker."""
        client, checked = self.client, _checked(changes)

        def work(tx: Tx) -> Endpoint:
            found = endpoints.lock(tx, client.tenant_id, number)
            endpoints.expect(found, if_version)
            wished = replace(found, **checked)
            if wished.url != found.url:
                refuse_closed(wished.url, allow_private=client.allow_private)
            if "enabled" in checked:
                wished = replace(wished, reason=None)
            if checked.get("enabled"):
                wished = replace(wished, failures=0, opened_at=None, probe_at=None)
            if wished == found:
                return found
            tx.wake()
            return endpoints.save(tx, wished, "edited", client.actor)

        return client.database.transact("edit_webhook", work)

    def delete(self, number: int, *, if_version: int | None = None) -> Endpoint:
        """Nothing more is sent to it; what was on its way is given up."""
        client = self.client

        def work(tx: Tx) -> Endpoint:
            found = endpoints.lock(tx, client.tenant_id, number)
            endpoints.expect(found, if_version)
            gone = endpoints.delete(tx, found, client.actor)
            tx.wake()
            return gone

        gone = self.everybody.transact("delete_webhook", work)
        outbox.disarm(client.lanes.database)
        return gone

    def rotate(self, number: int, *, secret: str | None = None, if_version: int | None = None) -> Endpoint:
        """Another secret. For a day the old one signs too, so that receivers can change over."""
        client = self.client
        fresh = new_secret() if secret is None else model.check_secret(secret)

        def work(tx: Tx) -> Endpoint:
            found = endpoints.lock(tx, client.tenant_id, number)
            endpoints.expect(found, if_version)
            until = endpoints.now(tx) + micros(model.KEEPS_OLD_SECRET)
            wished = replace(found, secret=fresh, old_secret=found.secret, old_until=until)
            return endpoints.save(tx, wished, "rotated", client.actor)

        return client.database.transact("rotate_webhook", work)

    def test(self, number: int) -> Delivery:
        """A delivery of `webhook.test` to see whether it arrives: sent at once, whatever else waits there."""
        client = self.client

        def work(tx: Tx) -> Delivery:
            found = endpoints.lock(tx, client.tenant_id, number)
            if not found.enabled:
                raise WrongState(f"webhook {number} is disabled: enable it first", status="disabled")
            return deliveries.add_test(tx, endpoints.save(tx, found, "tested", client.actor), model.TEST)

        return client.database.transact("test_webhook", work)

    def first_try(self, number: int, seconds: float) -> Delivery:
        """A delivery when it was tried once, or after so long."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.delivery(number)
            if found.tries or found.status != model.PENDING or time.monotonic() >= deadline:
                return found
            time.sleep(LOOK_SECONDS)

    def get(self, number: int) -> Endpoint:
        with self.client.database.read() as tx:
            return endpoints.find(tx, self.client.tenant_id, number)

    # --- for jobs that bring an address of their own ---

    def secret(self) -> str:
        """What signs deliveries to the `webhook_url` of jobs. Made when it is first asked for, or first needed."""
        client, fresh = self.client, new_secret()
        with client.database.read() as tx:
            known = endpoints.signers(tx, [client.tenant_id])
        if client.tenant_id in known:
            return known[client.tenant_id].secret
        made = client.database.transact("make_signer", lambda tx: endpoints.make_signer(tx, client.tenant_id, fresh))
        return made.secret

    def rotate_secret(self) -> str:
        """Another one of these. For a day the old one signs too."""
        client, fresh = self.client, new_secret()
        made = client.database.transact(
            "rotate_signer", lambda tx: endpoints.rotate_signer(tx, client.tenant_id, fresh)
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
        """To one endpoint, or about one job; newest first."""
        if (webhook is None) == (job is None):
            raise BadInput("say one of webhook and job", field="webhook")
        _check_status(status)
        tenant_id = self.client.tenant_id
        with self.client.database.read() as tx:
            if webhook is not None:
                endpoints.find(tx, tenant_id, webhook)
            if job is not None:
                jobs.find(tx, job, tenant_id)
            return deliveries_reading.page(
                tx, tenant_id, endpoint_id=webhook, job_id=job, status=status, event=event, limit=limit, cursor=cursor
            )

    def all_deliveries(
        self, *, status: str | None = None, event: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Delivery]:
        """To anybody, about anything; newest first."""
        _check_status(status)
        with self.client.database.read() as tx:
            return deliveries_reading.page(
                tx, self.client.tenant_id, status=status, event=event, limit=limit, cursor=cursor
            )

    def delivery(self, number: int) -> Delivery:
        with self.client.database.read() as tx:
            return deliveries_reading.find(tx, self.client.tenant_id, number)

    def tries(self, number: int) -> list[Try]:
        """How each try of a delivery went."""
        with self.client.database.read() as tx:
            return deliveries_reading.tries(tx, deliveries_reading.find(tx, self.client.tenant_id, number).id)

    def replay(self, number: int) -> Delivery:
        """The same message, id and bytes, once more: a new delivery with tries of its own."""
        client = self.client
        return client.database.transact(
            "replay_delivery", lambda tx: deliveries.replay(tx, client.tenant_id, number, client.actor)
        )

    def list(self, *, after: int = 0, limit: int = 200) -> list[Endpoint]:
        with self.client.database.read() as tx:
            return endpoints.page(tx, self.client.tenant_id, after=after, limit=limit)


def _check_status(status: str | None) -> None:
    if status is not None and status not in STATUSES:
        raise BadInput(f"status: a delivery is {', '.join(STATUSES)}, not {status!r}", field="status")


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

"""Tokens, tenants and webhooks in the local database, as the API's JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headway.api.schemas.access import made_json, tenant_json, token_json
from headway.api.schemas.jobs import event_json
from headway.api.schemas.webhooks import delivery_json, endpoint_json, try_json
from headway.cli.backend.base import after, cut
from headway.cli.output import Json
from headway.engine.client.tokens import any_token
from headway.model.access.permissions import Token
from headway.model.webhooks.webhook import Endpoint
from headway.store import audit_views
from headway.store.jobs import views as job_views
from headway.store.paging import check_limit
from headway.store.webhooks import endpoints

if TYPE_CHECKING:
    from headway.cli.backend.local import LocalBackend


class LocalTokens:
    """Tokens of all tenants in the local database."""

    def __init__(self, backend: LocalBackend) -> None:
        self.backend = backend

    def page(self, limit: int, cursor: str | None) -> Json:
        found = self.backend.client.tokens.list(everywhere=True, after=after(cursor), limit=check_limit(limit) + 1)
        return cut([self._json(token) for token in found], limit, "token_id")

    def _json(self, token: Token) -> Json:
        with self.backend.read() as tx:
            by = audit_views.deleted_by(tx, "token", [token.id] if token.revoked_at is not None else [])
        return token_json(token, self.backend.now(), by.get(token.id))

    def create(self, name: str, role: str, *, tenant: str | None, system: bool, expires: str | None) -> Json:
        owner = None if system else tenant or self.backend.client.tenant
        made, plain = self.backend.client.tokens.create(name, role, tenant=owner, expires=expires)
        return made_json(made, plain, self.backend.now())

    def get(self, number: int) -> Json:
        return token_json(self.backend.client.tokens.get(number, everywhere=True), self.backend.now())

    def revoke(self, number: int) -> Json:
        return self._json(self.backend.client.tokens.revoke(number, everywhere=True))

    def is_open(self) -> bool:
        return not any_token(self.backend.database)


class LocalTenants:
    """Tenants in the local database."""

    def __init__(self, backend: LocalBackend) -> None:
        self.backend = backend

    def page(self, limit: int, after: str = "") -> Json:
        found = [
            tenant_json(each) for each in self.backend.client.tenants.list(after=after, limit=check_limit(limit) + 1)
        ]
        return {"items": found[:limit], "next": found[limit - 1]["name"] if len(found) > limit else None}

    def create(
        self, name: str, *, allow: Sequence[str], default_allow: Sequence[str] | None, **limits: int | None
    ) -> Json:
        return tenant_json(self.backend.client.tenants.create(name, allow=allow, default_allow=default_allow, **limits))

    def get(self, name: str) -> Json:
        return tenant_json(self.backend.client.tenants.get(name))

    def edit(self, name: str, changes: Mapping[str, object]) -> Json:
        return tenant_json(self.backend.client.tenants.edit(name, changes))

    def deactivate(self, name: str) -> Json:
        return tenant_json(self.backend.client.tenants.deactivate(name))

    def activate(self, name: str) -> Json:
        return tenant_json(self.backend.client.tenants.activate(name))


class LocalWebhooks:
    """Webhooks and their deliveries in the local database."""

    def __init__(self, backend: LocalBackend) -> None:
        self.backend = backend
        self.verbs = backend.client.webhooks

    def page(self, limit: int, cursor: str | None, *, deleted: bool = False) -> Json:
        found = self.verbs.list(after=after(cursor), limit=check_limit(limit) + 1, deleted=deleted)
        return cut([self._json(endpoint) for endpoint in found], limit, "webhook_id")

    def _json(self, endpoint: Endpoint) -> Json:
        with self.backend.read() as tx:
            gone = [endpoint.id] if endpoint.deleted_at is not None else []
            by = audit_views.deleted_by(tx, "webhook", gone)
        return endpoint_json(endpoint, deleted_by=by.get(endpoint.id))

    def shown(self, number: int) -> Json:
        with self.backend.read() as tx:
            endpoint = endpoints.find(tx, self.backend.tenant_id, number, deleted=True)
            events = job_views.history(tx, "webhook", number)
        return {**self._json(endpoint), "events_of": [event_json(event) for event in events]}

    def create(self, url: str, **fields: Any) -> Json:
        return endpoint_json(self.verbs.create(url, **fields), secret=True)

    def edit(self, number: int, **changes: Any) -> Json:
        return endpoint_json(self.verbs.edit(number, **changes))

    def delete(self, number: int) -> Json:
        return self._json(self.verbs.delete(number))

    def rotate(self, number: int) -> Json:
        return endpoint_json(self.verbs.rotate(number), secret=True)

    def secret(self, *, rotate: bool) -> Json:
        return {"secret": self.verbs.rotate_secret() if rotate else self.verbs.secret()}

    def test(self, number: int) -> Json:
        return delivery_json(self.verbs.test(number))

    def deliveries(
        self, limit: int, cursor: str | None, *, webhook: int | None, job: int | None, status: str | None
    ) -> Json:
        page = self.verbs.deliveries(webhook=webhook, job=job, status=status, limit=limit, cursor=cursor)
        return {"items": [delivery_json(delivery) for delivery in page.items], "next": page.next}

    def delivery(self, number: int) -> Json:
        return delivery_json(self.verbs.delivery(number))

    def tries(self, number: int) -> Json:
        delivery = self.verbs.delivery(number)
        log = [try_json(attempt) for attempt in self.verbs.tries(number)]
        return {**delivery_json(delivery), "body": delivery.body, "log": log}

    def replay(self, number: int) -> Json:
        return delivery_json(self.verbs.replay(number))

"""Tokens, tenants and webhooks over HTTP, with the methods of the local client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headway.api.schemas.parse_access import delivery_of, endpoint_of, tenant_of, token_of, try_of
from headway.cli.backend.connection import Link, given, part
from headway.model.access.permissions import Token
from headway.model.access.tenants import Tenant
from headway.model.webhooks.webhook import Delivery, Endpoint, Try
from headway.store.paging import Page, make_cursor


def _begin(after: int) -> dict[str, str]:
    return {"cursor": make_cursor(after)} if after else {}


class HttpTokens:
    """Tokens over HTTP. The server shows the tokens that the caller may see, so `everywhere` has no effect."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def list(self, *, everywhere: bool = False, after: int = 0, limit: int = 200) -> list[Token]:
        return [token_of(one) for one in self.link.pages("/api/tokens", limit, **_begin(after))]

    def revoke(self, token_id: int, *, everywhere: bool = False) -> Token:
        return token_of(self.link.delete(f"/api/tokens/{token_id}"))


class HttpTenants:
    """Tenants over HTTP."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def create(
        self, name: str, *, allow: Sequence[str] = (), default_allow: Sequence[str] | None = None, **limits: int | None
    ) -> Tenant:
        kinds = {"allow": list(allow)} | ({} if default_allow is None else {"default_allow": list(default_allow)})
        return tenant_of(self.link.create("/api/tenants", {"name": name, **kinds, **limits})[0])

    def get(self, name: str) -> Tenant:
        return tenant_of(self.link.get(f"/api/tenants/{part(name)}"))

    def list(self, *, after: str = "", limit: int = 200) -> list[Tenant]:
        begin = {"cursor": after} if after else {}
        return [tenant_of(one) for one in self.link.pages("/api/tenants", limit, **begin)]

    def edit(self, name: str, changes: Mapping[str, object], if_version: int | None = None) -> Tenant:
        return tenant_of(self.link.patch(f"/api/tenants/{part(name)}", changes, if_version=if_version))

    def deactivate(self, name: str) -> Tenant:
        return tenant_of(self.link.post(f"/api/tenants/{part(name)}/deactivate"))

    def activate(self, name: str) -> Tenant:
        return tenant_of(self.link.post(f"/api/tenants/{part(name)}/activate"))


class HttpWebhooks:
    """Webhooks and their deliveries over HTTP."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def create(
        self,
        url: str,
        events: Sequence[str] = (),
        *,
        description: str | None = None,
        secret: str | None = None,
        max_tries: int | None = None,
    ) -> Endpoint:
        body = given(events=list(events) or None, description=description, secret=secret, max_tries=max_tries)
        return endpoint_of(self.link.create("/api/webhooks", {"url": url, **body})[0])

    def get(self, number: int) -> Endpoint:
        return endpoint_of(self.link.get(f"/api/webhooks/{number}"))

    def edit(self, number: int, *, if_version: int | None = None, **changes: Any) -> Endpoint:
        return endpoint_of(self.link.patch(f"/api/webhooks/{number}", changes, if_version=if_version))

    def delete(self, number: int) -> Endpoint:
        return endpoint_of(self.link.delete(f"/api/webhooks/{number}"))

    def rotate(self, number: int, *, secret: str | None = None) -> Endpoint:
        return endpoint_of(self.link.post(f"/api/webhooks/{number}/rotate", given(secret=secret)))

    def secret(self) -> str:
        return str(self.link.get("/api/webhooks/secret")["secret"])

    def rotate_secret(self) -> str:
        return str(self.link.post("/api/webhooks/secret/rotate")["secret"])

    def test(self, number: int) -> Delivery:
        return delivery_of(self.link.create(f"/api/webhooks/{number}/test")[0])

    def deliveries(
        self,
        *,
        webhook: int | None = None,
        job: int | None = None,
        status: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Delivery]:
        whose = f"/api/webhooks/{webhook}" if webhook is not None else f"/api/jobs/{job}"
        page = self.link.get(f"{whose}/deliveries", status=status, limit=limit, cursor=cursor)
        return Page([delivery_of(one) for one in page["items"]], page["next"])

    def delivery(self, number: int) -> Delivery:
        return delivery_of(self.link.get(f"/api/deliveries/{number}"))

    def tries(self, number: int) -> list[Try]:
        return [try_of(one) for one in self.link.get(f"/api/deliveries/{number}")["attempts"]]

    def list(self, *, after: int = 0, limit: int = 200) -> list[Endpoint]:
        return [endpoint_of(one) for one in self.link.pages("/api/webhooks", limit, **_begin(after))]

    def replay(self, number: int) -> Delivery:
        return delivery_of(self.link.create(f"/api/deliveries/{number}/replay")[0])

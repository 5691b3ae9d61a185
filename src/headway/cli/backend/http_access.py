"""Tokens, tenants and webhooks over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headway.cli.backend.connection import Link, given, part
from headway.cli.output import Json
from headway.store.paging import check_limit


class HttpTokens:
    """Tokens over HTTP. The server shows the tokens that the caller may see."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def page(self, limit: int, cursor: str | None) -> Json:
        return self.link.get("/api/tokens", limit=check_limit(limit), cursor=cursor)

    def create(self, name: str, role: str, *, tenant: str | None, system: bool, expires: str | None) -> Json:
        owner: Json = {"tenant": None} if system else given(tenant=tenant)
        return self.link.create("/api/tokens", {"name": name, "role": role, **owner, **given(expires=expires)})[0]

    def get(self, number: int) -> Json:
        return self.link.get(f"/api/tokens/{number}")

    def revoke(self, number: int) -> Json:
        return self.link.delete(f"/api/tokens/{number}")

    def is_open(self) -> bool:
        """Always False: a server does not disclose whether tokens exist."""
        return False


class HttpTenants:
    """Tenants over HTTP."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def page(self, limit: int, after: str = "") -> Json:
        return self.link.get("/api/tenants", limit=check_limit(limit), cursor=after or None)

    def create(
        self, name: str, *, allow: Sequence[str], default_allow: Sequence[str] | None, **limits: int | None
    ) -> Json:
        kinds = {"allow": list(allow)} | ({} if default_allow is None else {"default_allow": list(default_allow)})
        return self.link.create("/api/tenants", {"name": name, **kinds, **limits})[0]

    def get(self, name: str) -> Json:
        return self.link.get(f"/api/tenants/{part(name)}")

    def edit(self, name: str, changes: Mapping[str, object]) -> Json:
        return self.link.patch(f"/api/tenants/{part(name)}", changes)

    def deactivate(self, name: str) -> Json:
        return self.link.post(f"/api/tenants/{part(name)}/deactivate")

    def activate(self, name: str) -> Json:
        return self.link.post(f"/api/tenants/{part(name)}/activate")


class HttpWebhooks:
    """Webhooks and their deliveries over HTTP."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def page(self, limit: int, cursor: str | None, *, deleted: bool = False) -> Json:
        return self.link.get("/api/webhooks", deleted=deleted or None, limit=check_limit(limit), cursor=cursor)

    def shown(self, number: int) -> Json:
        return {**self.link.get(f"/api/webhooks/{number}"), "events_of": self.link.events(f"/api/webhooks/{number}")}

    def create(self, url: str, **fields: Any) -> Json:
        return self.link.create("/api/webhooks", {"url": url, **given(**fields)})[0]

    def edit(self, number: int, **changes: Any) -> Json:
        return self.link.patch(f"/api/webhooks/{number}", changes)

    def delete(self, number: int) -> Json:
        return self.link.delete(f"/api/webhooks/{number}")

    def rotate(self, number: int) -> Json:
        return self.link.post(f"/api/webhooks/{number}/rotate")

    def secret(self, *, rotate: bool) -> Json:
        return self.link.post("/api/webhooks/secret/rotate") if rotate else self.link.get("/api/webhooks/secret")

    def test(self, number: int) -> Json:
        return self.link.create(f"/api/webhooks/{number}/test")[0]

    def deliveries(
        self, limit: int, cursor: str | None, *, webhook: int | None, job: int | None, status: str | None
    ) -> Json:
        whose = f"/api/webhooks/{webhook}" if webhook is not None else f"/api/jobs/{job}"
        return self.link.get(f"{whose}/deliveries", status=status, limit=limit, cursor=cursor)

    def delivery(self, number: int) -> Json:
        return self.link.get(f"/api/deliveries/{number}")

    def tries(self, number: int) -> Json:
        answer = self.link.get(f"/api/deliveries/{number}")
        log = answer.pop("attempts")
        return {**answer, "log": log}

    def replay(self, number: int) -> Json:
        return self.link.create(f"/api/deliveries/{number}/replay")[0]

"""Who may come in, and for which tenant: the visitor's own role, tokens, and the tenants of the installation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from headway.api.access import names_tenant
from headway.dashboard import once
from headway.dashboard.pages import Page, Pages
from headway.engine.tokens import any_token
from headway.errors import BadInput, HeadwayError, NotFound, WrongState
from headway.model.access import Role, check_grant
from headway.model.tenant import FIELDS, Tenant, Usage, read_limit
from headway.model.values import whole
from headway.store import tenants
from headway.store.pages import make_cursor, read_cursor

pages = Pages("access")
LISTED = 50
# How the choice of a token's owner is spelled in the form: a tenant may be called `system`.
OF_SYSTEM, OF_TENANT = "system", "tenant"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A form that was not taken: which, what was filled in, and what is wrong with it, at which field. `stale`:
    somebody else changed the thing since the form was shown."""

    form: str
    text: str
    field: str
    filled: Mapping[str, str]
    stale: bool


# A form that came back stands at the address that it was sent to: there, too, the page can be asked for again.
@pages.get("/access")
@pages.get("/access/tokens")
@pages.get("/access/tenants")
@pages.get("/access/tenants/edit")
def show(page: Page) -> Response:
    return _show(page)


def _show(page: Page, refusal: Refusal | None = None) -> Response:
    """A viewer and an operator see who they are; an admin sees tokens too, one of the system tenants besides."""
    admin = page.may("admin")
    facts: dict[str, Any] = {
        "open": not any_token(page.service.database),
        "tokens": _tokens(page) if admin else None,
        "tenants": _tenants(page) if admin and page.visitor.system else None,
        "narrow": names_tenant(page.request.scope),
        "fields": FIELDS,
        "refusal": refusal,
        "once": page.once,
    }
    return page.render("access.html", status=200 if refusal is None else 422, **facts)


def _again(page: Page, form: str, error: HeadwayError) -> Response:
    filled = dict(page.form.fields)
    field = error.field if error.field not in (None, "version") else ""  # what nobody sees is said above the form
    return _show(page, Refusal(form, str(error), field or "", filled, stale=error.code == "version_mismatch"))


# --- tokens -------------------------------------------------------------------------------------------------------


def _tokens(page: Page) -> dict[str, Any]:
    everywhere = page.visitor.system and not names_tenant(page.request.scope)
    cursor = page.asked.given("cursor")
    after = 0 if cursor is None else read_cursor(cursor)
    found = page.client.tokens.list(everywhere=everywhere, after=after, limit=LISTED + 1)
    more = make_cursor(found[LISTED - 1].id) if len(found) > LISTED else None
    return {"items": [(one, one.state(page.now)) for one in found[:LISTED]], "next": more, "everywhere": everywhere}


@pages.post("/access/tokens", Role.ADMIN)
def create_token(page: Page) -> Response:
    """Its text is in this answer and nowhere else: not in a cookie, and not in an address. Sent once more, the form
    makes nothing, and nothing can show the text again."""
    form, client = page.form, once.keyed(page)
    try:
        tenant = None if form.get("owner") == OF_SYSTEM else form.get("tenant") or page.visitor.tenant
        check_grant(page.visitor, tenant)
        first = not any_token(page.service.database)
        token, plain = client.tokens.create(
            form.get("name"), form.get("role"), tenant=tenant, expires=form.given("expires")
        )
    except (BadInput, NotFound) as error:
        return _again(page, "token", error)
    if client.replayed:
        text = f"Token {token.id} of {token.name} was made already, and its text was shown then: it is not shown again."
        return page.done(text, to=page.address("/access"))
    return page.render("access_token.html", status=201, token=token, plain=plain, first=first)


@pages.post("/access/tokens/{token_id:int}/revoke", Role.ADMIN)
def revoke_token(page: Page, token_id: int) -> Response:
    token = page.client.tokens.revoke(token_id, everywhere=page.visitor.system)
    last = (
        ""
        if any_token(page.service.database)
        else " It was the last one: whoever is on this machine may do everything."
    )
    return page.done(f"Token {token.id} of {token.name} was revoked: it opens nothing from now on.{last}")


# --- tenants ------------------------------------------------------------------------------------------------------


def _tenants(page: Page) -> dict[str, Any]:
    found = page.client.tenants.list(after=page.asked.get("after"), limit=LISTED + 1)
    with page.look() as tx:
        items: list[tuple[Tenant, Usage]] = [(one, tenants.usage(tx, one.id)) for one in found[:LISTED]]
    more = found[LISTED - 1].name if len(found) > LISTED else None
    return {"items": items, "next": more, "counted": tenants.COUNTED}


@pages.post("/access/tenants", Role.ADMIN, system=True)
def create_tenant(page: Page) -> Response:
    client = once.keyed(page)
    try:
        made = client.tenants.create(page.form.get("name"), **_limits(page))
    except BadInput as error:
        return _again(page, "tenant", error)
    already = " already" if client.replayed else ""
    return page.done(f"Tenant {made.name} was made{already}.", to=page.address("/access"))


@pages.post("/access/tenants/edit", Role.ADMIN, system=True)
def edit_tenant(page: Page) -> Response:
    name, version = page.form.get("name"), page.form.given("version")
    try:
        seen = None if version is None else whole(version, field="version")
        page.client.tenants.edit(name, _limits(page), seen)
    except (BadInput, WrongState) as error:
        return _again(page, f"edit {name}", error)
    return page.done(f"Tenant {name} has other limits. What runs goes on.", to=page.address("/access"))


def _limits(page: Page) -> dict[str, int | None]:
    return {name: read_limit(name, page.form.get(name)) for name in FIELDS if name in page.form}


@pages.post("/access/tenants/deactivate", Role.ADMIN, system=True)
def deactivate(page: Page) -> Response:
    tenant = page.client.tenants.deactivate(page.form.get("name"))
    undo = ("/access/tenants/activate", {"name": tenant.name})
    return page.done(f"Tenant {tenant.name} is inactive: nothing of it starts, its tokens are refused.", undo=undo)


@pages.post("/access/tenants/activate", Role.ADMIN, system=True)
def activate(page: Page) -> Response:
    tenant = page.client.tenants.activate(page.form.get("name"))
    return page.done(f"Tenant {tenant.name} is active: its queue goes on where it stood.")

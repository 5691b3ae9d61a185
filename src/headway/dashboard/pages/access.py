"""The access page: the visitor's role, the tokens and the tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from headway.api.http.auth import names_tenant
from headway.dashboard import form_tokens
from headway.dashboard.page import PageRequest, Pages
from headway.engine.client.tokens import any_token
from headway.errors import BadInput, HeadwayError, NotFound, WrongState
from headway.model.access.authority import KINDS
from headway.model.access.permissions import Role, check_grant
from headway.model.access.tenants import FIELDS, Tenant, Usage, read_limit
from headway.model.values.names import whole
from headway.store.access import tenants
from headway.store.paging import make_cursor, read_cursor

pages = Pages("access")
LISTED = 50
# Values of the owner field in the token form. They are not names, because a tenant may be called `system`.
OF_SYSTEM, OF_TENANT = "system", "tenant"
# Fields with admin kinds. A field without a mark in its boxes is not sent, so `asks_` and its name is sent beside it.
CHOSEN = ("allow", "default_allow")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused form: its name, its values, and the error with its field.

    `stale` means that the thing has changed since the form was shown. `chosen` are the admin kinds by their field.
    """

    form: str
    text: str
    field: str
    filled: Mapping[str, str]
    stale: bool
    chosen: Mapping[str, Sequence[str]]


# A refused form is shown at the address it was sent to, so that address must answer GET too.
@pages.get("/access")
@pages.get("/access/tokens")
@pages.get("/access/tenants")
@pages.get("/access/tenants/edit")
def show(page: PageRequest) -> Response:
    return _show(page)


def _show(page: PageRequest, refusal: Refusal | None = None) -> Response:
    """Renders the page; tokens are for admins, tenants for system admins."""
    admin = page.may("admin")
    facts: dict[str, Any] = {
        "open": not any_token(page.service.database),
        "tokens": _tokens(page) if admin else None,
        "tenants": _tenants(page) if admin and page.visitor.system else None,
        "narrow": names_tenant(page.request.scope),
        "fields": FIELDS,
        "all_kinds": KINDS,
        "refusal": refusal,
        "once": page.once,
    }
    return page.render("access.html", status=200 if refusal is None else 422, **facts)


def _again(page: PageRequest, form: str, error: HeadwayError) -> Response:
    filled = dict(page.form.fields)
    field = error.field if error.field not in (None, "version") else ""  # `version` is hidden: shown above the form
    chosen = {name: page.form.all(name) for name in CHOSEN}
    stale = error.code == "version_mismatch"
    return _show(page, Refusal(form, str(error), field or "", filled, stale=stale, chosen=chosen))


# --- tokens -------------------------------------------------------------------------------------------------------


def _tokens(page: PageRequest) -> dict[str, Any]:
    everywhere = page.visitor.system and not names_tenant(page.request.scope)
    cursor = page.asked.given("cursor")
    after = 0 if cursor is None else read_cursor(cursor)
    found = page.client.tokens.list(everywhere=everywhere, after=after, limit=LISTED + 1)
    more = make_cursor(found[LISTED - 1].id) if len(found) > LISTED else None
    items = [(token, token.state(page.now)) for token in found[:LISTED]]
    return {"items": items, "next": more, "everywhere": everywhere}


@pages.post("/access/tokens", Role.ADMIN)
def create_token(page: PageRequest) -> Response:
    """Creates a token and shows its text in this answer only.

    A repeated form creates nothing and cannot show the text again.
    """
    form, client = page.form, form_tokens.keyed(page)
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
        text = f"Token {token.id} of {token.name} was created before; its text was shown once and is not shown again."
        return page.done(text, to=page.address("/access"))
    return page.render("access_token.html", status=201, token=token, plain=plain, first=first)


@pages.post("/access/tokens/{token_id:int}/revoke", Role.ADMIN)
def revoke_token(page: PageRequest, token_id: int) -> Response:
    token = page.client.tokens.revoke(token_id, everywhere=page.visitor.system)
    last = (
        ""
        if any_token(page.service.database)
        else " It was the last one: every caller on this machine now has full access."
    )
    return page.done(f"Token {token.id} of {token.name} was revoked and is refused from now on.{last}")


# --- tenants ------------------------------------------------------------------------------------------------------


def _tenants(page: PageRequest) -> dict[str, Any]:
    found = page.client.tenants.list(after=page.asked.get("after"), limit=LISTED + 1)
    with page.look() as tx:
        items: list[tuple[Tenant, Usage]] = [(tenant, tenants.usage(tx, tenant.id)) for tenant in found[:LISTED]]
    more = found[LISTED - 1].name if len(found) > LISTED else None
    alone = items[0][0] if len(items) == 1 and not page.asked.get("after") else None
    return {"items": items, "next": more, "counted": tenants.COUNTED, "alone": alone}


@pages.post("/access/tenants", Role.ADMIN, system=True)
def create_tenant(page: PageRequest) -> Response:
    client = form_tokens.keyed(page)
    try:
        made = client.tenants.create(page.form.get("name"), **_kinds(page), **_limits(page))  # type: ignore[arg-type]
    except BadInput as error:
        return _again(page, "tenant", error)
    already = " already" if client.replayed else ""
    return page.done(f"Tenant {made.name} was made{already}.", to=page.address("/access"))


@pages.post("/access/tenants/edit", Role.ADMIN, system=True)
def edit_tenant(page: PageRequest) -> Response:
    name, version = page.form.get("name"), page.form.given("version")
    try:
        seen = None if version is None else whole(version, field="version")
        page.client.tenants.edit(name, {**_limits(page), **_changed_kinds(page, name)}, seen)
    except (BadInput, WrongState) as error:
        return _again(page, f"edit {name}", error)
    opened = page.form.all("allow")
    what = f" Its admins may give {', '.join(opened)} and run code as the user of the worker." if opened else ""
    text = f"The limits of tenant {name} were changed. Running jobs continue.{what}"
    return page.done(text, to=page.address("/access"))


def _kinds(page: PageRequest) -> dict[str, list[str]]:
    """Returns the admin kinds of the form by their field, without the fields that the form does not ask for."""
    return {name: page.form.all(name) for name in CHOSEN if f"asks_{name}" in page.form}


def _changed_kinds(page: PageRequest, name: str) -> dict[str, list[str]]:
    """Returns the admin kinds of the form, unless it leaves a tenant as open as it is without a decision."""
    kinds = _kinds(page)
    with page.client.database.read() as tx:
        undecided = tenants.find(tx, name).allow is None
    return {} if undecided and set(kinds.get("allow", ())) == set(KINDS) else kinds


def _limits(page: PageRequest) -> dict[str, int | None]:
    return {name: read_limit(name, page.form.get(name)) for name in FIELDS if name in page.form}


@pages.post("/access/tenants/deactivate", Role.ADMIN, system=True)
def deactivate(page: PageRequest) -> Response:
    tenant = page.client.tenants.deactivate(page.form.get("name"))
    undo = ("/access/tenants/activate", {"name": tenant.name})
    text = f"Tenant {tenant.name} is inactive: its jobs do not start, its tokens are refused."
    return page.done(text, undo=undo)


@pages.post("/access/tenants/activate", Role.ADMIN, system=True)
def activate(page: PageRequest) -> Response:
    tenant = page.client.tenants.activate(page.form.get("name"))
    return page.done(f"Tenant {tenant.name} is active: its queue continues.")

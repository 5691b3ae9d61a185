"""Who comes, and what they may do: roles, tokens, sessions, visitors, and the tasks that are an admin's. Pure."""

from __future__ import annotations

import base64
import enum
import hashlib
import hmac
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from headway.errors import NotFound, Refused
from headway.model.job import Actor
from headway.model.schedule import Definition
from headway.model.template import Template
from headway.model.values import refuse

# They run whatever their params say, as the user that the worker runs as.
ADMIN_TASKS = frozenset({"command", "powershell", "sql"})
# What says when and how urgently a job runs, and who is told, but not what it does nor beside whom.
HARMLESS = frozenset(
    ("priority", "delay", "not_before", "expires_at", "key", "hold", "webhook_url", "webhook_events", "traceparent")
)
PREFIX = "hw_"
SESSION_PREFIX = "hws_"
# Of chance, in a token and in a session; and as text.
BYTES = 32
DIGITS = 43


class Role(enum.Enum):
    """A viewer looks, an operator works with jobs, an admin decides who may do what. Each may what those before may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def may(self, needed: Role) -> bool:
        return _ORDER[self] >= _ORDER[needed]

    @staticmethod
    def parse(text: object, *, field: str = "role") -> Role:
        if isinstance(text, Role):
            return text
        try:
            return Role(text)
        except ValueError:
            refuse(field, f"must be {', '.join(role.value for role in Role)}, not {text!r}")


_ORDER = {role: n for n, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is known: what it opens, and never what it is. Without a tenant it is the system's."""

    id: int
    tenant_id: int | None
    tenant: str | None
    name: str
    role: Role
    hint: str
    created_at: int
    created_by: str
    expires_at: int | None
    revoked_at: int | None
    version: int

    @property
    def actor(self) -> Actor:
        return Actor("token", str(self.id), self.name)

    def state(self, now: int) -> str:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "live"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who a request comes from, and the tenant it acts for. `system`: it may act for any tenant, and see them all."""

    actor: Actor
    tenant: str
    tenant_id: int
    role: Role
    system: bool


def looks_like_token(plain: str) -> bool:
    """Whether it is worth a look into the database."""
    return len(plain) == len(PREFIX) + DIGITS and plain.startswith(PREFIX) and plain.isascii()


def looks_like_session(plain: str) -> bool:
    return len(plain) == len(SESSION_PREFIX) + DIGITS and plain.startswith(SESSION_PREFIX) and plain.isascii()


def fingerprint(plain: str) -> str:
    """A token as it is stored. It is random and long, so that a fast hash is enough."""
    return hashlib.sha256(plain.encode()).hexdigest()


def csrf_of(cookie: str) -> str:
    """What a write that comes with this cookie has to carry. A page that may not read the cookie cannot know it."""
    digest = hashlib.sha256(f"headway csrf {cookie}".encode()).digest()
    return base64.urlsafe_b64encode(digest).decode()[:DIGITS]


def is_csrf_of(given: str, cookie: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), csrf_of(cookie).encode())


def form_token(cookie: str, tenant: str) -> str:
    """What a form carries: that of its cookie, and for which tenant somebody acted who was shown it."""
    return f"{csrf_of(cookie)}.{quote(tenant, safe='')}"


def check_form(given: str, cookie: str | None, tenant: str | None) -> None:
    """`tenant`: for which one this browser acts now, which may have been changed on another page; None where that is
    of no matter."""
    token, _, shown = given.partition(".")
    if cookie is None or not is_csrf_of(token, cookie):
        text = "this form is too old, or from elsewhere: nothing was done; please send it again"
        raise Refused(text, code="bad_csrf")
    if tenant is not None and unquote(shown) != tenant:
        text = f"you act for {tenant} now: look at the page again; nothing was done"
        raise Refused(text, code="other_tenant")


def seal(cookie: str, text: str) -> str:
    """Who knows the cookie wrote this text. No page has the seal of a text that is not its own."""
    return hmac.new(f"headway seal {cookie}".encode(), text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def hint_of(plain: str) -> str:
    """What tells one token from another in a list."""
    return f"{plain[: len(PREFIX) + 4]}…"


# --- what they may do ---------------------------------------------------------------------------------------------


def check_tasks(visitor: Visitor, tasks: Iterable[str]) -> None:
    """Whoever names these tasks in a job, a group, a template, a schedule or a direct call must be allowed to."""
    for task in tasks:
        check_task(visitor, task)


def check_task(visitor: Visitor, task: str) -> None:
    if task in ADMIN_TASKS and not visitor.role.may(Role.ADMIN):
        text = f"{task} runs whatever its params say: only an admin may create or edit what names it"
        raise _admin_only(text + "; make a job of an admin's template instead", task=task)


def check_from_template(
    visitor: Visitor, template: Template, params: Collection[str] = (), options: Mapping[str, object] | None = None
) -> None:
    """An operator may run an admin's template of such a task as it is, with only the params that it leaves open."""
    if template.task not in ADMIN_TASKS or visitor.role.may(Role.ADMIN):
        return
    for name in params:
        if name not in template.open_params:
            listed = ", ".join(template.open_params) or "none"
            text = f"template {template.name!r} of {template.task} leaves these params open: {listed}"
            raise _admin_only(f"{text}; {name!r} is an admin's to give", field=f"params.{name}", task=template.task)
    for name, value in (options or {}).items():
        if value is not None and name not in HARMLESS:
            text = f"with template {template.name!r} of {template.task} only an admin may say {name}"
            raise _admin_only(text, field=name, task=template.task)


def check_new_params(visitor: Visitor, tasks: Iterable[str]) -> None:
    """Other params for what exists: an edit, a retry with edited params, a manual run with params of its own."""
    for task in tasks:
        if task in ADMIN_TASKS and not visitor.role.may(Role.ADMIN):
            text = f"{task} runs whatever its params say: only an admin may give it other ones"
            raise _admin_only(text, field="params", task=task)


def check_policy(visitor: Visitor, on_failure: str | None) -> None:
    """A policy of the users' own is a module that gets imported: which one is an admin's to say."""
    if on_failure is not None and ("." in on_failure or ":" in on_failure) and not visitor.role.may(Role.ADMIN):
        text = f"on_failure {on_failure!r} is code that gets loaded: only an admin may name it"
        raise Refused(f"{text}; say stop, continue or skip", code="admin_only", field="on_failure")


def tasks_of(definition: Definition, task_of_template: Callable[[str | int], str]) -> list[str]:
    """All tasks that a schedule runs, also through templates."""
    named = [definition.template, *(step.template for step in definition.steps)]
    tasks = {step.task for step in definition.steps if step.task is not None}
    return sorted(tasks | {task_of_template(which) for which in named if which is not None})


def check_grant(visitor: Visitor, tenant: str | None) -> None:
    """A tenant's admin makes tokens for that tenant alone. Another one is, to them, not there."""
    if visitor.system or tenant == visitor.tenant:
        return
    if tenant is None:
        raise Refused("only a token of the system may make tokens of the system: name your tenant", code="not_allowed")
    raise NotFound(f"there is no tenant {tenant!r}")


def check_everybody(visitor: Visitor, everybody: bool) -> None:
    if everybody and not visitor.system:
        raise Refused("only tokens of the system may pause or resume every queue", code="not_allowed")


def may_set_limit(*, system: bool, shared: bool) -> bool:
    """A tenant's lanes are its admin's, those of the installation are everybody's."""
    return system or not shared


def _admin_only(text: str, *, task: str, field: str | None = None) -> Refused:
    return Refused(text, code="admin_only", field=field, task=task)

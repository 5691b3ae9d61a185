"""Roles, tokens, sessions, and the permissions of each role. Pure."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from headway.errors import NotFound, Refused
from headway.model.jobs.job import Actor
from headway.model.schedules.definition import Definition
from headway.model.values.refuse import refuse

PREFIX = "hw_"
SESSION_PREFIX = "hws_"
# Random bytes in a token and in a session, and their length as text.
BYTES = 32
DIGITS = 43


class Role(enum.Enum):
    """A viewer reads, an operator works with jobs, an admin manages access. Each includes the role before."""

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
    """A stored token without its secret. A token without a tenant belongs to the system."""

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
    """The actor of a request and its tenant. `system` means that it may act for any tenant and list all."""

    actor: Actor
    tenant: str
    tenant_id: int
    role: Role
    system: bool


def looks_like_token(plain: str) -> bool:
    """Returns True if the text has the form of a token, so that only such texts reach the database."""
    return len(plain) == len(PREFIX) + DIGITS and plain.startswith(PREFIX) and plain.isascii()


def looks_like_session(plain: str) -> bool:
    return len(plain) == len(SESSION_PREFIX) + DIGITS and plain.startswith(SESSION_PREFIX) and plain.isascii()


def fingerprint(plain: str) -> str:
    """Returns the stored hash of a token. A token is long and random, so a fast hash is enough."""
    return hashlib.sha256(plain.encode()).hexdigest()


def hint_of(plain: str) -> str:
    """Returns the first characters of a token, which identify it in a list."""
    return f"{plain[: len(PREFIX) + 4]}…"


# --- permissions --------------------------------------------------------------------------------------------------


def tasks_of(definition: Definition, task_of_template: Callable[[str | int], str]) -> list[str]:
    """Returns all tasks that a schedule runs, including those of its templates."""
    named = [definition.template, *(step.template for step in definition.steps)]
    tasks = {step.task for step in definition.steps if step.task is not None}
    return sorted(tasks | {task_of_template(which) for which in named if which is not None})


def check_grant(visitor: Visitor, tenant: str | None) -> None:
    """Refuses a token for another tenant; to a tenant's admin, other tenants do not exist."""
    if visitor.system or tenant == visitor.tenant:
        return
    if tenant is None:
        raise Refused(
            "only a token of the system may make tokens of the system", hint="name your tenant", code="not_allowed"
        )
    raise NotFound(f"there is no tenant {tenant!r}", noun="tenant")


def check_everybody(visitor: Visitor, everybody: bool) -> None:
    if everybody and not visitor.system:
        raise Refused("only tokens of the system may pause or resume every queue", code="not_allowed")


def may_set_limit(*, system: bool, shared: bool) -> bool:
    """Returns True if the caller may set this lane's limit; a shared lane belongs to the system."""
    return system or not shared

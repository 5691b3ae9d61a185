"""A tenant: a separate world of jobs, schedules, targets and tokens, whether it is active, and what it may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from headway.errors import Refused
from headway.model.values import check_name, refuse

MOST = 1_000_000_000
EVERYBODY = "*"


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much a tenant may have at once: jobs that wait, jobs that run, schedules. None: as much as it likes."""

    max_queued: int | None = None
    max_running: int | None = None
    max_schedules: int | None = None

    def facts(self) -> dict[str, int | None]:
        return asdict(self)

    def changed(self, changes: Mapping[str, object]) -> Allowance:
        """What is not named stays; None takes a limit away."""
        for name, value in changes.items():
            if name not in FIELDS:
                refuse(name, f"is not a limit: there are {', '.join(FIELDS)}")
            check_limit(name, value)
        return replace(self, **changes)  # type: ignore[arg-type]


FIELDS = ("max_queued", "max_running", "max_schedules")


def check_limit(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST:
        refuse(name, f"must be a whole number from 0 to {MOST}, or none, not {value!r}")


@dataclass(frozen=True, slots=True)
class Tenant:
    """Its queue may be paused, by `paused_at`, while it is active."""

    id: int
    name: str
    created_at: int
    active: bool
    allowance: Allowance
    paused_at: int | None
    paused_until: int | None
    version: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What a tenant has of what may be limited, in the order of `FIELDS`."""

    queued: int = 0
    running: int = 0
    schedules: int = 0


def read_limit(name: str, text: str) -> int | None:
    """A limit as somebody writes it: a number, or nothing (also `none`) for no limit."""
    written = text.strip().lower()
    if written in ("", "none"):
        return None
    if not (written.isascii() and written.isdigit()) or len(written) > 10:
        refuse(name, f"must be a whole number from 0 to {MOST}, or empty for no limit, not {text!r}")
    check_limit(name, int(written))
    return int(written)


def check_tenant_name(name: object) -> str:
    found = check_name(name, field="name")
    if found == EVERYBODY:
        refuse("name", "must not be '*', which means everybody")
    return found


def inactive(name: str) -> Refused:
    return Refused(
        f"the tenant {name} is inactive and gets no new work: headway tenants activate {name}", code="tenant_inactive"
    )


def over_limit(name: str, field: str, most: int, what: str) -> Refused:
    return Refused(
        f"the tenant {name} may have {most} {what} at most ({field}), and this would be more:"
        f" wait until there are fewer, or headway tenants edit {name} raises the limit",
        code="limit_reached",
        limit=field,
        most=most,
    )

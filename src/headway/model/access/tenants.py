"""A tenant: its state, its limits, and how much of them it uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from headway.errors import Refused
from headway.model.access.authority import KINDS
from headway.model.values.names import check_name
from headway.model.values.refuse import refuse

MOST = 1_000_000_000
EVERYBODY = "*"
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Allowance:
    """A tenant's limits on waiting jobs, running jobs and schedules. None means no limit."""

    max_queued: int | None = None
    max_running: int | None = None
    max_schedules: int | None = None

    def facts(self) -> dict[str, int | None]:
        return asdict(self)

    def changed(self, changes: Mapping[str, object]) -> Allowance:
        """Returns the allowance with changes applied; None removes a limit."""
        for name, value in changes.items():
            if name not in FIELDS:
                refuse(name, f"is not a limit: use one of {', '.join(FIELDS)}")
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
    """A tenant as it is stored. `paused_at` is set while its queue is paused, `allow` once it was decided."""

    id: int
    name: str
    created_at: int
    active: bool
    allowance: Allowance
    paused_at: int | None
    paused_until: int | None
    version: int
    allow: tuple[str, ...] | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """Returns the admin kinds that the tenant's own admins may give.

        The tenant `default` is open for all of them until a second tenant exists; then its `allow` is stored.
        """
        return (KINDS if self.name == DEFAULT else ()) if self.allow is None else self.allow


@dataclass(frozen=True, slots=True)
class Usage:
    """A tenant's current counts, in the order of `FIELDS`."""

    queued: int = 0
    running: int = 0
    schedules: int = 0


def read_limit(name: str, text: str) -> int | None:
    """Parses a limit: a number; an empty text or `none` means no limit."""
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
        refuse("name", "must not be '*', which means every tenant")
    return found


def inactive(name: str) -> Refused:
    return Refused(
        f"the tenant {name} is inactive and accepts no new jobs: headway tenants activate {name}",
        code="tenant_inactive",
    )


def over_limit(name: str, field: str, most: int, what: str) -> Refused:
    return Refused(
        f"the tenant {name} may have at most {most} {what} ({field}), and this would exceed it",
        hint=f"wait until there are fewer, or raise the limit with headway tenants edit {name}",
        code="limit_reached",
        limit=field,
        most=most,
    )

"""A stored schedule and its ticks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from headway.errors import BadInput
from headway.model.schedules.definition import Definition

# A smaller difference between two clocks is normal.
CLOCK_TOLERANCE = 60_000_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is stored. All ticks up to `decided_until` are decided; `definition` is JSON.

    `defined_by` made or last changed the definition. `templates` are the ids of the templates that it names, bound when
    it was saved. Ticks that were missed up to `missed_seen_at` were seen by a person.
    """

    id: int
    tenant_id: int
    name: str
    definition: str
    enabled: int
    origin: str
    decided_until: int
    next_at: int | None
    last_run_at: int | None
    created_at: int
    created_by: str
    deleted_at: int | None
    version: int
    defined_by: str | None = None
    templates: str = "{}"
    missed_seen_at: int | None = None

    @property
    def author(self) -> str:
        """Returns the actor that answers for the definition."""
        return self.defined_by or self.created_by

    @property
    def bound(self) -> Mapping[str, int]:
        """Returns the ids of the templates that the definition names."""
        found: dict[str, int] = json.loads(self.templates)
        return found

    @property
    def parsed(self) -> Definition:
        return Definition.read(self.definition)

    @property
    def readable(self) -> bool:
        """Returns False if only another version of Headway, or of the time zones, can parse it."""
        try:
            return bool(self.parsed)
        except BadInput:
            return False

    def ahead(self, now: int) -> bool:
        """Returns True if a fast clock decided ticks beyond now, so that the schedule is silent until then."""
        return bool(self.enabled) and self.decided_until > now + CLOCK_TOLERANCE

    @property
    def anchor(self) -> int:
        """Returns the instant from which intervals are counted."""
        return anchor_of(self.parsed, self.created_at)


def anchor_of(definition: Definition, created_at: int) -> int:
    return created_at if definition.start is None else definition.start


@dataclass(frozen=True, slots=True)
class Tick:
    """A stored decision: one nominal time, or neighbours with the same decision (first, last, count)."""

    id: int
    tenant_id: int
    schedule_id: int
    nominal_at: int
    until: int
    count: int
    outcome: str
    reason: str | None
    execution_id: int | None
    decided_at: int

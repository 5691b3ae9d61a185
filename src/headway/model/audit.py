"""The filter of the audit list, and its form in the query of a request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.errors import BadInput
from headway.model.values.suggestions import closest
from headway.model.values.times import instant, instant_text

# The things whose every event is listed: what people administer.
ADMINISTERED = ("tenant", "lane", "concurrency", "target", "token", "webhook", "template", "schedule")
# The things of which the actions of people are listed. Their other events are listed for a thing by its number.
WORK = ("job", "group", "execution", "delivery")
THINGS = (*ADMINISTERED, *WORK)


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Selects events: of an actor by name or id, of a kind, about a thing or one thing, within a time."""

    actor: str | None = None
    thing: str | None = None
    thing_id: int | None = None
    kind: str | None = None
    since: int | None = None
    until: int | None = None

    @staticmethod
    def from_query(asked: Mapping[str, Any], *, labels: Mapping[str, str] | None = None) -> AuditFilter:
        """Checks the fields of a query. Times are RFC 3339, or microseconds; `labels` name the fields in a refusal."""
        names = {"thing": "thing", "thing_id": "thing_id", **(labels or {})}
        given = {name: value for name, value in asked.items() if value not in (None, "")}
        thing = given.get("thing")
        if thing is not None and thing not in THINGS:
            near = closest(thing, THINGS)
            hint = f"did you mean {near}?" if near else f"one of {', '.join(THINGS)}"
            raise BadInput(f"{names['thing']}: there is no thing {thing!r}", hint=hint, field="thing")
        if "thing_id" in given and thing is None:
            raise BadInput(f"{names['thing_id']} needs {names['thing']}: say what has this number", field="thing_id")
        for name in ("since", "until"):
            if isinstance(given.get(name), str):
                given[name] = instant(given[name], field=name)
        return AuditFilter(**given)

    def to_query(self) -> dict[str, Any]:
        """Returns the fields of a query; `from_query` reads them."""
        query = {
            "actor": self.actor,
            "thing": self.thing,
            "thing_id": self.thing_id,
            "kind": self.kind,
            "since": None if self.since is None else instant_text(self.since),
            "until": None if self.until is None else instant_text(self.until),
        }
        return {name: value for name, value in query.items() if value is not None}

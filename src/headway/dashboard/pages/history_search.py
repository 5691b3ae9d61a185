"""The search form of the history: its fields, and the filters they mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from headway.clock import micros
from headway.dashboard.page import Form
from headway.dashboard.time_format import DisplayPreferences, clock_zone
from headway.errors import BadInput
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.outcome import FailureKind
from headway.model.jobs.states import State
from headway.model.values.names import check_name, whole
from headway.model.values.times import instant

# Quick choices of time: value and label. Days are those of the reader's zone.
PERIODS = (
    ("1h", "last hour"),
    ("24h", "last 24 hours"),
    ("today", "today"),
    ("yesterday", "yesterday"),
    ("7d", "last 7 days"),
    ("30d", "last 30 days"),
)
_LENGTHS = {"1h": 3_600.0, "24h": 86_400.0, "7d": 604_800.0, "30d": 2_592_000.0}
STATUSES = [State[name].name for name in ("COMPLETED", "FAILED", "SKIPPED", "CANCELLED", "RUNNING", "PAUSED", "ERROR")]
KINDS = [kind.value for kind in FailureKind]
FIELDS = ("q", "task", "status", "failure_kind", "target", "schedule", "within", "since", "until", "exhausted")


@dataclass(frozen=True, slots=True)
class Search:
    """A filled-in search form. Times without a zone are in the reader's zone."""

    fields: dict[str, str]
    zone: str

    def filters(self, now: int, schedule_named: Callable[[str], int]) -> JobFilter:
        """Returns the filters; `schedule_named` returns the id of a schedule by its name."""
        get = self.fields.get
        since, until = self._instant("since"), self._instant("until")
        if since is None and until is None:
            since, until = within(get("within", ""), now, self.zone)
        return JobFilter.from_query(
            {
                **{name: get(name) or None for name in ("task", "failure_kind", "q", "target")},
                "status": [get("status")] if get("status") else None,
                "exhausted": True if get("exhausted") else None,
                "since": since,
                "until": until,
                "schedule_id": self._schedule(schedule_named),
            }
        )

    @property
    def narrow(self) -> bool:
        """True if any field is filled in."""
        return any(self.fields.values())

    def local(self, name: str) -> str:
        """Returns a time in the format of a `datetime-local` field."""
        try:
            at = self._instant(name)
            return "" if at is None else f"{datetime.fromtimestamp(at / 1e6, ZoneInfo(self.zone)):%Y-%m-%dT%H:%M}"
        except (BadInput, ValueError, OverflowError):  # not a time, or out of range in this zone
            return self.fields[name]

    def _instant(self, name: str) -> int | None:
        text = self.fields.get(name, "")
        if not text:
            return None
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return instant(text, field=name)
        return instant(moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(self.zone)), field=name)

    def _schedule(self, named: Callable[[str], int]) -> int | None:
        """Returns the id of the schedule.

        Digits are an id, so that deleted schedules can be found.
        """
        text = self.fields["schedule"]
        if not text:
            return None
        if text.isascii() and text.isdigit():
            return whole(text, field="schedule", least=1)
        return named(check_name(text, field="schedule"))


def search(asked: Form, preferences: DisplayPreferences) -> Search:
    fields = {name: asked.get(name) for name in FIELDS}
    fields["status"] = ",".join(status for status in asked.all("status") if status)
    return Search(fields, clock_zone(preferences))


def within(word: str, now: int, zone: str) -> tuple[int | None, int | None]:
    """Returns the bounds of a quick choice."""
    match word:
        case "":
            return None, None
        case "today":
            return _midnight(now, zone), None
        case "yesterday":
            today = _midnight(now, zone)
            return _midnight(today - 1, zone), today
    if word not in _LENGTHS:
        raise BadInput(f"within must be {', '.join(name for name, _ in PERIODS)}, not {word[:40]!r}", field="within")
    return now - micros(_LENGTHS[word]), None


def _midnight(at: int, zone: str) -> int:
    """Returns the start of an instant's day.

    If a clock change skips midnight, the first instant after it.
    """
    local = datetime.fromtimestamp(at / 1e6, ZoneInfo(zone)).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    return round(local.timestamp() * 1e6)

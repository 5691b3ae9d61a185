"""What is asked of the history: the fields of its search form, as they were filled in and as filters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from headway.clock import micros
from headway.dashboard.pages import Form
from headway.dashboard.times import Taste, clock_zone
from headway.errors import BadInput
from headway.model import words
from headway.model.outcome import FailureKind
from headway.model.states import State
from headway.model.values import check_name, instant, whole
from headway.store.pages import Filters

# Quick choices of time: the word in the address, the word for people. Days are those of the reader's clocks.
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
FIELDS = ("q", "task", "status", "failure_kind", "target", "schedule", "within", "since", "until")


@dataclass(frozen=True, slots=True)
class Search:
    """A filled-in search form. Times without a zone are in the reader's."""

    fields: dict[str, str]
    zone: str

    def filters(self, now: int, schedule_named: Callable[[str], int]) -> Filters:
        """`schedule_named` finds the number of a schedule by its name."""
        get = self.fields.get
        since, until = self._instant("since"), self._instant("until")
        if since is None and until is None:
            since, until = within(get("within", ""), now, self.zone)
        return Filters(
            statuses=words.states([get("status", "")]) if get("status") else frozenset(),
            task=get("task") or None,
            failure_kind=words.failure_kind(get("failure_kind") or None),
            since=since,
            until=until,
            q=get("q") or None,
            target=check_name(self.fields["target"], field="target") if get("target") else None,
            schedule_id=self._schedule(schedule_named),
        )

    @property
    def narrow(self) -> bool:
        """Whether anything was asked for."""
        return any(self.fields.values())

    def local(self, name: str) -> str:
        """A time as a browser's own field takes it."""
        try:
            at = self._instant(name)
            return "" if at is None else f"{datetime.fromtimestamp(at / 1e6, ZoneInfo(self.zone)):%Y-%m-%dT%H:%M}"
        except (BadInput, ValueError, OverflowError):  # no time, or one that is another year's end there
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
        """Digits are a number: also of one that was deleted."""
        text = self.fields["schedule"]
        if not text:
            return None
        if text.isascii() and text.isdigit():
            return whole(text, field="schedule", least=1)
        return named(check_name(text, field="schedule"))


def search(asked: Form, taste: Taste) -> Search:
    fields = {name: asked.get(name) for name in FIELDS}
    fields["status"] = ",".join(one for one in asked.all("status") if one)
    return Search(fields, clock_zone(taste))


def within(word: str, now: int, zone: str) -> tuple[int | None, int | None]:
    """From when and until when, by a quick choice."""
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
    """When the day of an instant began; where a clock change takes midnight away, the first instant after it."""
    local = datetime.fromtimestamp(at / 1e6, ZoneInfo(zone)).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    return round(local.timestamp() * 1e6)

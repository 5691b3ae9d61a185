"""Which backups a rotation keeps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headway.errors import BadInput
from headway.model.backups import expired, name_at, parse_keep, taken_at

NIGHT = datetime(2026, 1, 1, 3, tzinfo=UTC)


def _name(at: datetime) -> str:
    return name_at(int(at.timestamp() * 1_000_000))


def _rotated(nights: int, rule: str) -> list[datetime]:
    """Makes a backup each night and rotates after each; returns the times of those that are left."""
    kept: list[str] = []
    for night in range(nights):
        kept.append(_name(NIGHT + timedelta(days=night)))
        gone = expired(kept, parse_keep(rule))
        kept = [name for name in kept if name not in gone]
    return [at for at in map(taken_at, kept) if at is not None]


def test_a_name_tells_its_time() -> None:
    assert _name(NIGHT) == "headway-20260101T030000Z.backup"
    assert taken_at(_name(NIGHT)) == NIGHT
    for other in ("headway.db", "headway-20260101T030000Z.backup.files", "headway-20261301T030000Z.backup"):
        assert taken_at(other) is None


def test_after_a_year_days_weeks_and_months_are_left() -> None:
    left = _rotated(365, "7d,4w,6m")
    last = NIGHT + timedelta(days=364)
    assert left[-7:] == [last - timedelta(days=n) for n in reversed(range(7))]
    assert {at.month for at in left} == {7, 8, 9, 10, 11, 12}
    assert len({at.isocalendar()[:2] for at in left[-10:]}) >= 4
    assert len(left) <= 7 + 4 + 6
    assert len(_rotated(1_100, "2y")) == 2


@pytest.mark.parametrize("rule", ["1d", "1w", "1m", "1y"])
def test_the_newest_is_always_kept_and_other_files_are_left_alone(rule: str) -> None:
    names = [_name(NIGHT + timedelta(minutes=n)) for n in range(5)]
    assert expired([*names, "notes.txt"], parse_keep(rule)) == names[:-1]
    assert expired(names[-1:], parse_keep(rule)) == []
    assert expired(["notes.txt"], parse_keep(rule)) == []


@pytest.mark.parametrize("text", ["", "7", "d", "0d", "7d,3d", "7h", "-1d", "7d;4w", "99999d"])
def test_a_rule_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="like 7d,4w,6m"):
        parse_keep(text)

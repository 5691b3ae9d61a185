"""Cron ticks against a brute-force oracle, and against cronsim.

24 zones × one year, each in a year in which its clocks did something; `HEADWAY_PROOF=1` makes it all zones × 3 years.
"""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.model.schedules import cron
from tests.support.cron_oracle import Expression, Year, year_of
from tests.support.properties import examples

PROOF = bool(os.environ.get("HEADWAY_PROOF"))
SECOND = 1_000_000

ZONES = [
    ("UTC", 2028),
    ("Europe/Berlin", 2026),
    ("Europe/London", 2026),
    ("Europe/Dublin", 2025),  # winter time is the one that is "daylight saving"
    ("America/New_York", 2026),
    ("America/Los_Angeles", 2027),
    ("America/St_Johns", 2010),  # changed at one minute past midnight
    ("America/Sao_Paulo", 2018),  # a midnight gap
    ("America/Havana", 2024),  # midnight, both ways
    ("America/Santiago", 2024),
    ("America/Caracas", 2016),  # half an hour for ever
    ("Asia/Beirut", 2025),
    ("Asia/Kathmandu", 2026),
    ("Asia/Kolkata", 2026),
    ("Asia/Pyongyang", 2015),
    ("Asia/Gaza", 2023),
    ("Africa/Cairo", 2024),
    ("Africa/Casablanca", 2026),  # Ramadan
    ("Africa/Juba", 2021),  # an hour back, for ever
    ("Antarctica/Troll", 2026),  # two hours
    ("Antarctica/Casey", 2018),  # three hours
    ("Australia/Lord_Howe", 2026),  # half an hour, twice a year
    ("Pacific/Apia", 2011),  # without 30 December
    ("Pacific/Kiritimati", 1994),  # without 31 December
]
NAMES = sorted(available_timezones() - {"localtime", "Factory"})
EVERYWHERE = [(zone, year) for zone in NAMES for year in (2025, 2026, 2027)]

EXPRESSIONS = [
    "* * * * *",
    "*/5 * * * *",
    "0 * * * *",
    "30 */2 * * *",
    "17 1-23/3 * * *",
    "*/20 0-3 * * *",
    "0 0 * * *",
    "30 0 * * *",
    "30 1 * * *",
    "30 2 * * *",
    "0,15,30,45 2,3 * * *",
    "59 23 * * *",
    "0 3 * * sun",
    "30 2 * * mon-fri",
    "0 9 1,15 * mon",
    "0 9 */2 * mon",
    "0 9 1-7 * */3",
    "0 12 31 * *",
    "0 0 29 2 *",
    "10 4 * jan,mar,oct-dec 5-7",
    "0 9 30,31 12 *",
]


def same(text: str, zone: str, year: Year) -> None:
    after, until = year.begin * 60 * SECOND - 1, year.end * 60 * SECOND - 1
    expected = year.ticks(Expression.of(text))
    parsed = cron.parse(text)
    assert list(cron.ticks(parsed, zone, after, until)) == expected, f"{text} in {zone}"
    assert cron.count(parsed, zone, after, until) == len(expected)
    assert cron.last_ticks(parsed, zone, after, until, 50) == expected[-50:]


@pytest.mark.parametrize(("zone", "year"), EVERYWHERE if PROOF else ZONES)
def test_a_year_of_ticks(zone: str, year: int) -> None:
    walked = Year(zone, year) if PROOF else year_of(zone, year)
    for text in EXPRESSIONS:
        same(text, zone, walked)


def test_there_are_24_zones() -> None:
    assert len({zone for zone, _ in ZONES}) == 24


# --- any expression -----------------------------------------------------------------------------------------------


def field(low: int, high: int, *, star: int = 2) -> st.SearchStrategy[str]:
    """Terms that classic cron has, stars more often than chance would have it."""
    value = st.integers(low, high)
    span = st.tuples(value, value).map(lambda pair: (min(pair), max(pair)))
    stepped = span.filter(lambda pair: pair[0] < pair[1]).flatmap(
        lambda pair: st.integers(1, pair[1] - pair[0]).map(lambda step: f"{pair[0]}-{pair[1]}/{step}")
    )
    term = st.one_of(value.map(str), span.map(lambda pair: f"{pair[0]}-{pair[1]}"), stepped)
    # A step in the weekdays is counted to Saturday, and a step has to leave more than one value.
    wide = st.integers(1, (6 if high == 7 else high) - low).map(lambda step: f"*/{step}")
    terms = st.lists(st.one_of(term, wide), min_size=1, max_size=3).map(",".join)
    return st.one_of(*[st.just("*")] * star, wide, value.map(str), terms)


def possible(text: str) -> bool:
    named = Expression.of(text)
    longest = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
    return any(day <= longest.get(month, 31) for day in named.days for month in named.months)


expressions = (
    st.tuples(field(0, 59, star=1), field(0, 23), field(1, 31, star=3), field(1, 12, star=4), field(0, 7, star=3))
    .map(" ".join)
    .filter(possible)
)


@settings(max_examples=examples(600 if PROOF else 60), deadline=None)
@given(expressions, st.sampled_from([one for one in ZONES if one[1] in (2011, 2018, 2024, 2026)]))
def test_any_expression(text: str, place: tuple[str, int]) -> None:
    same(text, place[0], year_of(*place))


# --- cronsim ------------------------------------------------------------------------------------------------------


def changed(day: date, zone: ZoneInfo) -> bool:
    noons = [datetime(day.year, day.month, day.day, 12, tzinfo=zone) + timedelta(days=shift) for shift in (-1, 0, 1)]
    return len({noon.utcoffset() for noon in noons}) > 1


@settings(max_examples=examples(2000 if PROOF else 200), deadline=None)
@given(
    expressions,
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo"]),
    st.integers(1_735_689_600, 1_893_456_000),
)
def test_cronsim_agrees(text: str, zone: str, second: int) -> None:
    """On days without a clock change: cronsim moves a time in a gap to the same place, but it calls an expression
    fixed when neither its minute nor its hour begins with a star, where we ask for a star or a step in the hour."""
    named = ZoneInfo(zone)
    parsed = cron.parse(text)
    begin = datetime.fromtimestamp(second, named)
    end = begin + timedelta(days=40)
    theirs: list[datetime] = []
    for tick in CronSim(text, begin):
        if tick > end or len(theirs) > 200:
            break
        theirs.append(tick)
    until = int(theirs[-1].timestamp()) if theirs else int(end.timestamp())
    ours = [
        datetime.fromtimestamp(tick // SECOND, named)
        for tick in cron.ticks(parsed, zone, second * SECOND, until * SECOND)
    ]
    assert _quiet(ours, named) == _quiet(theirs, named)


def _quiet(local: list[datetime], zone: ZoneInfo) -> list[datetime]:
    return [tick.astimezone(UTC) for tick in local if not changed(tick.date(), zone)]

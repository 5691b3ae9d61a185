"""Cron by hand: what is read and refused, what clock changes do, and how long a search takes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from headway.engine.client.schedules import upcoming
from headway.errors import BadInput
from headway.model.schedules import cron, timezones
from headway.model.schedules.definition import Definition

SECOND = 1_000_000
DAY = 86_400 * SECOND


def at(text: str, zone: str = "UTC") -> int:
    """Microseconds UTC of a local time."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * SECOND


def local(tick: int | None, zone: str) -> str:
    assert tick is not None
    return f"{datetime.fromtimestamp(tick / SECOND, ZoneInfo(zone)):%Y-%m-%d %H:%M%z}"


def following(text: str, zone: str, after: str, n: int) -> list[str]:
    begin = at(after, zone)
    found = islice(cron.ticks(cron.parse(text), zone, begin, begin + 400 * DAY), n)
    return [local(tick, zone) for tick in found]


# --- reading ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("  00 02\t*  *  MON-Fri ", "0 2 * * mon-fri"),
        ("@hourly", "0 * * * *"),
        ("@Daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        (" @annually ", "0 0 1 1 *"),
        ("*/05 10-20/05 1,2,03 JAN,feb Sun", "*/5 10-20/5 1,2,3 jan,feb sun"),
    ],
)
def test_text_is_normalised(text: str, normal: str) -> None:
    assert cron.parse(text).text == normal
    assert cron.parse(normal).text == normal
    assert str(cron.parse(text)) == normal


@pytest.mark.parametrize(
    ("field", "weekdays"),
    [
        ("0", [6]),
        ("7", [6]),
        ("sun", [6]),
        ("1", [0]),
        ("5-7", [4, 5, 6]),
        ("6-7", [5, 6]),
        ("fri-sun", [4, 5, 6]),
        ("sun-tue", [0, 1, 6]),
        ("sun-sun", [6]),
        ("0-7", [0, 1, 2, 3, 4, 5, 6]),
        ("*/2", [1, 3, 5, 6]),
        ("mon-sun/2", [0, 2, 4, 6]),
        ("fri,1", [0, 4]),
    ],
)
def test_weekdays_count_from_monday(field: str, weekdays: list[int]) -> None:
    assert list(cron.parse(f"0 0 * * {field}").weekdays) == weekdays


@pytest.mark.parametrize(
    ("field", "minutes"),
    [
        ("*/20", [0, 20, 40]),
        ("*/25", [0, 25, 50]),
        ("10-50/15", [10, 25, 40]),
        ("0-0", [0]),
        ("5,1-3,5", [1, 2, 3, 5]),
        ("*/59", [0, 59]),
        ("*/30,*/20", [0, 20, 30, 40]),
    ],
)
def test_steps_ranges_and_lists(field: str, minutes: list[int]) -> None:
    assert list(cron.parse(f"{field} * * * *").minutes) == minutes


REFUSED = [
    ("", "is empty"),
    ("   ", "is empty"),
    ("* * * *", "has 4 fields: write five fields (minute hour day-of-month month day-of-week)"),
    ("0 * * * * *", "has 6 fields, and classic cron has five"),
    ("0 * * * * *", "leave out seconds"),
    ("0 0 * * * * 2026", "leave out seconds and the year"),
    ("1, 2 * * * *", "has blanks beside a comma"),
    ("@reboot", "@reboot names no time"),
    ("@dayly", "did you mean @daily?"),
    ("@", "write @hourly, @daily"),
    ("60 * * * *", "has '60' in the minute field: it goes from 0 to 59"),
    ("* 24 * * *", "has '24' in the hour field: it goes from 0 to 23"),
    ("* * 0 * *", "has '0' in the day-of-month field: it goes from 1 to 31"),
    ("* * * 13 *", "has '13' in the month field: it goes from 1 to 12, or jan to dec"),
    ("* * * * 8", "has '8' in the day-of-week field: it goes from 0 to 7, or sun to sat (0 and 7 are Sunday)"),
    ("* * * * monday", "did you mean mon?"),
    ("* * * febr *", "did you mean feb?"),
    ("* * * mon *", "in the month field: it goes from 1 to 12"),
    ("* * * * fri-mon", "write fri-sun,mon"),
    ("* * * * sat-tue", "write sat-sun,mon-tue"),
    ("* * * * 6-2", "write 6-7,1-2"),
    ("* * * * 7-2", "write 0-2"),
    ("* * * * 5-0", "write 5-7"),
    ("* 22-2 * * *", "write 22-23,0-2"),
    ("* 23-0 * * *", "write 23,0"),
    ("* * * nov-feb *", "write nov-dec,jan-feb"),
    ("* * 20-10 * *", "write 20-31,1-10"),
    ("5/15 * * * *", "a step needs a range, write 5-59/15"),
    ("*/60 * * * *", "a step of 60 leaves only 0, write 0"),
    ("* */24 * * *", "a step of 24 leaves only 0"),
    ("10-20/15 * * * *", "a step of 15 leaves only 10"),
    ("*/0 * * * *", "a step is at least 1"),
    ("* * ? * *", "write * instead"),
    ("* * L * *", "L (the last) is not classic cron"),
    ("* * LW * *", "L (the last) is not classic cron"),
    ("* * 15W * *", "W (the nearest weekday) is not classic cron"),
    ("* * * * mon#2", "# (the n-th weekday) is not classic cron"),
    ("* * * * 5L", "L (the last) is not classic cron"),
    ("1,,2 * * * *", "has '' in the minute field"),
    ("-1 * * * *", "has '-1' in the minute field"),
    ("*-5 * * * *", "write *, a value, a range"),
    ("1-2-3 * * * *", "write *, a value, a range"),
    ("1.5 * * * *", "write *, a value, a range"),
    ("a * * * *", "in the minute field: it goes from 0 to 59"),
    ("٣ * * * *", "in the minute field"),
    ("0 0 31 2 *", "names a date that never comes: day 31 in month 2 (no day-of-month above 29 there)"),
    ("0 0 30,31 feb *", "names a date that never comes"),
    ("0 0 31 4,6,9,11 *", "names a date that never comes"),
    ("0 0 31 2 mon", "names a date that never comes"),
    ("0," * 600 + "0 * * * *", "is longer than 1000 characters"),
]


@pytest.mark.parametrize(("text", "problem"), REFUSED)
def test_refused_with_a_hint(text: str, problem: str) -> None:
    with pytest.raises(BadInput) as refused:
        cron.parse(text)
    assert problem in str(refused.value)
    assert refused.value.field == "cron"


@pytest.mark.parametrize("value", [None, 5, ["* * * * *"], b"* * * * *"])
def test_only_text_is_read(value: object) -> None:
    with pytest.raises(BadInput, match="cron must be text"):
        cron.parse(value)


def test_the_proposal_of_a_hint_is_accepted() -> None:
    tried = 0
    for text, _ in REFUSED:
        with pytest.raises(BadInput) as refused:
            cron.parse(text)
        if proposed := re.search(r"has '(.+)' in .*[,:] write (\S*\d\S*|\S+,\S+)$", str(refused.value)):
            cron.parse(text.replace(proposed[1], proposed[2]))
            tried += 1
    assert tried >= 12


@pytest.mark.parametrize("text", ["0 0 29 2 *", "0 0 31 * *", "0 0 30,31 1,2 *", "0 0 31 2,3 *", "0 0 29 2 mon"])
def test_dates_that_come_some_time(text: str) -> None:
    assert cron.next_tick(cron.parse(text), "UTC", 0) is not None


# --- days ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("0 0 1,15 6 mon", [1, 8, 15, 22, 29]),  # one of both is enough (June 2026 begins on a Monday)
        ("0 0 13 6 fri", [5, 12, 13, 19, 26]),
        ("0 0 */2 6 mon", [1, 15, 29]),  # begins with a star: both
        ("0 0 *,13 6 fri", [5, 12, 19, 26]),
        ("0 0 13 6 */2", [13]),  # a Saturday
        ("0 0 14 6 */6", [14]),
        ("0 0 15 6 */6", []),
        ("0 0 13,* 6 tue", list(range(1, 31))),  # does not begin with one
    ],
)
def test_day_fields(text: str, days: list[int]) -> None:
    found = cron.ticks(cron.parse(text), "UTC", at("2026-05-31T12:00"), at("2026-06-30T12:00"))
    assert [datetime.fromtimestamp(tick / SECOND, ZoneInfo("UTC")).day for tick in found] == days


# --- clock changes ------------------------------------------------------------------------------------------------

BERLIN = "Europe/Berlin"


def test_a_fixed_time_in_a_gap_comes_at_its_end() -> None:
    assert following("30 2 * * *", BERLIN, "2026-03-28T12:00", 2) == ["2026-03-29 03:00+0200", "2026-03-30 02:30+0200"]


def test_fixed_times_in_a_gap_are_one_tick() -> None:
    ticks = following("*/10 2,3 * * *", BERLIN, "2026-03-28T12:00", 3)
    assert ticks == ["2026-03-29 03:00+0200", "2026-03-29 03:10+0200", "2026-03-29 03:20+0200"]


def test_a_fixed_time_in_a_fold_comes_once() -> None:
    assert following("30 2 * * *", BERLIN, "2026-10-24T12:00", 2) == ["2026-10-25 02:30+0200", "2026-10-26 02:30+0100"]
    ticks = following("0,30 2,3 * * *", BERLIN, "2026-10-24T12:00", 3)
    assert ticks == ["2026-10-25 02:00+0200", "2026-10-25 02:30+0200", "2026-10-25 03:00+0100"]


@pytest.mark.parametrize("hour", ["*", "*/1", "1-3/1", "1,2-3/1"])
def test_a_star_or_a_step_in_the_hour_follows_elapsed_time(hour: str) -> None:
    gap = following(f"30 {hour} * * *", BERLIN, "2026-03-29T00:45", 2)
    assert gap == ["2026-03-29 01:30+0100", "2026-03-29 03:30+0200"]
    fold = following(f"30 {hour} * * *", BERLIN, "2026-10-25T00:45", 4)
    assert fold == ["2026-10-25 01:30+0200", "2026-10-25 02:30+0200", "2026-10-25 02:30+0100", "2026-10-25 03:30+0100"]


def test_a_range_in_the_hour_is_fixed() -> None:
    assert following("30 1-3 * * *", BERLIN, "2026-03-29T00:45", 2) == [
        "2026-03-29 01:30+0100",
        "2026-03-29 03:00+0200",
    ]


@pytest.mark.parametrize(
    ("zone", "after", "first"),
    [
        ("America/Sao_Paulo", "2018-11-03T12:00", "2018-11-04 01:00-0200"),
        ("Asia/Beirut", "2025-03-29T12:00", "2025-03-30 01:00+0300"),
        ("Africa/Cairo", "2024-04-25T12:00", "2024-04-26 01:00+0300"),
        ("Pacific/Apia", "2011-12-29T12:00", "2011-12-31 00:00+1400"),
    ],
)
def test_midnight_gaps(zone: str, after: str, first: str) -> None:
    assert following("0 0 * * *", zone, after, 1) == [first]


def test_a_day_that_was_skipped() -> None:
    ticks = following("0 9 * * *", "Pacific/Apia", "2011-12-29T08:00", 3)
    assert ticks == ["2011-12-29 09:00-1000", "2011-12-31 00:00+1400", "2011-12-31 09:00+1400"]
    assert following("0 9-10/1 30 12 *", "Pacific/Apia", "2011-12-29T08:00", 1) == ["2012-12-30 09:00+1400"]


def test_half_an_hour() -> None:
    zone = "Australia/Lord_Howe"
    assert following("15 2 * * *", zone, "2026-10-03T12:00", 1) == ["2026-10-04 02:30+1100"]
    ticks = following("45 * * * *", zone, "2026-04-05T01:00", 3)
    assert ticks == ["2026-04-05 01:45+1100", "2026-04-05 01:45+1030", "2026-04-05 02:45+1030"]


def test_an_offset_with_seconds() -> None:
    """Monrovia was 44 minutes and 30 seconds behind, and jumped over that much on 7 January 1972."""
    zone = "Africa/Monrovia"
    noon = cron.next_tick(cron.parse("0 12 * * *"), zone, at("1972-01-05T23:00"))
    assert noon == at("1972-01-06T12:44:30")
    assert cron.next_tick(cron.parse("30 0 7 1 *"), zone, noon) == at("1972-01-07T00:44:30")


def test_a_gap_at_the_turn_of_the_year() -> None:
    """Kiritimati went from 30 December 1994 to 1 January 1995: one stretch ends with a year, the next begins one."""
    zone = "Pacific/Kiritimati"
    ticks = following("0 9 * * *", zone, "1994-12-30T08:00", 3)
    assert ticks == ["1994-12-30 09:00-1000", "1995-01-01 00:00+1400", "1995-01-01 09:00+1400"]


# --- spans --------------------------------------------------------------------------------------------------------


def test_a_span_begins_after_and_ends_with() -> None:
    daily = cron.parse("@daily")
    one, two = at("2026-01-01"), at("2026-01-02")
    assert list(cron.ticks(daily, "UTC", one, two)) == [two]
    assert list(cron.ticks(daily, "UTC", one - 1, two - 1)) == [one]
    assert list(cron.ticks(daily, "UTC", two, one)) == []
    assert cron.count(daily, "UTC", one, two) == 1
    assert cron.count(daily, "UTC", two, one) == 0
    assert cron.next_tick(daily, "UTC", one) == two
    assert cron.next_tick(daily, "UTC", one - 1) == one
    assert cron.previous_tick(daily, "UTC", two) == one
    assert cron.previous_tick(daily, "UTC", two + 1) == two
    assert cron.last_ticks(daily, "UTC", one, two, 5) == [two]
    assert cron.last_ticks(daily, "UTC", one - 1, two, 1) == [two]
    assert cron.last_ticks(daily, "UTC", one - 1, two, 0) == []


def test_parts_of_a_span_make_the_whole() -> None:
    """Cut anywhere, also in a gap and in a fold, nothing is lost and nothing comes twice."""
    for text in ("*/10 2 * * *", "*/10 * * * *", "0 3 * * *", "30 2 * * *"):
        parsed = cron.parse(text)
        for around in ("2026-03-29T00:00", "2026-10-25T00:00"):
            begin, end = at(around) - DAY, at(around) + DAY
            whole = list(cron.ticks(parsed, BERLIN, begin, end))
            for cut in range(begin, end, 300 * SECOND):
                parts = [*cron.ticks(parsed, BERLIN, begin, cut), *cron.ticks(parsed, BERLIN, cut, end)]
                assert parts == whole
                assert cron.count(parsed, BERLIN, begin, cut) + cron.count(parsed, BERLIN, cut, end) == len(whole)
                assert cron.previous_tick(parsed, BERLIN, cut + 1) == max(
                    (tick for tick in whole if tick <= cut), default=cron.previous_tick(parsed, BERLIN, begin + 1)
                )


def test_the_ends_of_the_calendar() -> None:
    daily = cron.parse("@daily")
    assert cron.previous_tick(daily, "UTC", 1) == 0
    assert cron.previous_tick(daily, "UTC", 0) is None
    assert cron.next_tick(daily, "UTC", -(10**18)) == 0
    assert cron.next_tick(daily, "Pacific/Kiritimati", at("9998-12-31T12:00")) is None
    assert cron.next_tick(daily, "UTC", 10**18) is None
    assert cron.count(daily, "UTC", -(10**18), at("1970-01-03")) == 3


# --- cost ---------------------------------------------------------------------------------------------------------


def timed(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def test_a_year_of_minutes_is_counted_by_days() -> None:
    minutely = cron.parse("* * * * *")
    begin, end = at("2026-01-01") - 1, at("2027-01-01") - 1
    spent = timed(lambda: (cron.count(minutely, BERLIN, begin, end), cron.last_ticks(minutely, BERLIN, begin, end, 10)))
    assert cron.count(minutely, BERLIN, begin, end) == 525_600
    assert spent < 0.25  # ten times what it takes, and a tenth of listing them


def test_rare_dates_are_found_quickly() -> None:
    """29 February, and one on a Saturday or Sunday, from just after one of them; 2100 is no leap year."""
    for text in ("0 0 29 2 *", "0 0 29 2 */6"):
        parsed = cron.parse(text)
        assert timed(partial(cron.next_tick, parsed, "America/Lima", at("2096-03-01"))) < 0.25
    assert local(cron.next_tick(cron.parse("0 0 29 2 *"), "UTC", at("2096-03-01")), "UTC") == "2104-02-29 00:00+0000"
    assert local(cron.next_tick(cron.parse("0 0 29 2 */6"), "UTC", at("2088-03-01")), "UTC") == "2116-02-29 00:00+0000"


@pytest.mark.parametrize(
    "text", ["0 0 29 2 *", "0 0 29 2 */6", "0 0 1 1 *", "30 2 * 3 sun", "* * * * *", "0 0 1 * mon"]
)
@pytest.mark.parametrize("zone", [BERLIN, "Africa/Casablanca"])
def test_a_thousand_ticks_are_shown_quickly(text: str, zone: str) -> None:
    """29 February comes 1,000 times in 4,100 years; nothing is remembered of the zone and the calendar."""
    what = Definition.parse({"cron": text, "timezone": zone, "steps": [{"task": "story"}]})

    def cold() -> None:
        timezones._of_year.cache_clear()
        cron._days_of_year.cache_clear()
        assert len(upcoming(what, 0, at("2026-01-01"), 1000)) in (1000, 538)

    assert min(timed(cold) for _ in range(4)) < 0.1


def test_a_long_span_is_counted_by_years() -> None:
    """9,000 years of minutes: a backfill counts the times of its span before it refuses it."""
    span = at("1970-01-01") - 1, cron.LATEST
    minutely = cron.parse("* * * * *")
    assert cron.count(minutely, "UTC", *span) == (cron.LATEST + 1) // (60 * SECOND)
    assert min(timed(lambda: cron.count(minutely, "UTC", *span)) for _ in range(4)) < 0.25


# --- notes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "when", "note"),
    [
        ("30 2 * * *", BERLIN, "2026-03-29T03:00", "moved by the clock change from 02:30 to 03:00"),
        ("0,30 2 * * *", BERLIN, "2026-03-29T03:00", "moved by the clock change from 02:00 and 02:30 to 03:00"),
        ("*/15 2 * * *", BERLIN, "2026-03-29T03:00", "moved by the clock change from 02:00 … 02:45 (4 times) to 03:00"),
        ("30 2,3 * * *", BERLIN, "2026-03-29T03:30", None),
        ("0 2,3 * * *", BERLIN, "2026-03-29T03:00", "also replaces 02:00, which the clock change skips"),
        ("0 * * * *", BERLIN, "2026-03-29T03:00", None),
        ("30 2 * * *", BERLIN, "2026-10-25T02:30", "the first 02:30: the clock change repeats it"),
        ("30 2 * * *", BERLIN, "2026-10-26T02:30", None),
        ("30 2 * * *", BERLIN, "2026-10-26T02:31", None),
        (
            "0 9 * * *",
            "Pacific/Apia",
            "2011-12-31T00:00",
            "moved by the clock change from 2011-12-30 09:00 to 2011-12-31 00:00",
        ),
    ],
)
def test_notes(text: str, zone: str, when: str, note: str | None) -> None:
    assert cron.notes(cron.parse(text), zone, at(when, zone)) == note


def test_the_second_of_two() -> None:
    second = at("2026-10-25T02:30", BERLIN) + 3600 * SECOND
    assert cron.notes(cron.parse("30 * * * *"), BERLIN, second) == "the second 02:30: the clock change repeats it"
    assert cron.notes(cron.parse("30 2 * * *"), BERLIN, second) is None


# --- zones --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "known"),
    [("UTC", "UTC"), ("utc", "UTC"), (" Europe/Berlin ", "Europe/Berlin"), ("america/new_york", "America/New_York")],
)
def test_zones_are_known(name: str, known: str) -> None:
    assert cron.check_zone(name) == known


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Berlin", "did you mean Europe/Berlin?"),
        ("US/New York", "did you mean America/New_York?"),
        ("Europe/Berlim", "Europe/Berlin"),
        ("Mars/Phobos", "write an IANA name such as Europe/Berlin"),
        ("", "write an IANA name"),
        ("localtime", "is not known"),
        ("right/UTC", "is not known"),
        ("../../etc/passwd", "is not known"),
        (3, "must be text"),
        (None, "must be text"),
    ],
)
def test_unknown_zones(name: object, problem: str) -> None:
    with pytest.raises(BadInput) as refused:
        cron.check_zone(name)
    assert problem in str(refused.value)
    assert refused.value.field == "timezone"


def test_ticks_in_an_unknown_zone() -> None:
    with pytest.raises(BadInput, match="timezone"):
        cron.next_tick(cron.parse("@daily"), "Mars/Phobos", 0)


@pytest.mark.parametrize("year", [2099, 2100, 2137, 2437, 2500, 9996])
def test_later_years_have_the_clock_changes_of_a_year_like_them(year: int) -> None:
    """A year from 2100 on is derived from another one with the same leap day and weekdays: each day is looked at."""
    for name in timezones.zone_names()[:: 1 if year == 2137 else 7]:
        zone, found = ZoneInfo(name), list(timezones._of_year(name, year))
        assert (found[0].start, found[-1].end) == (timezones.first_second(year), timezones.first_second(year + 1))
        for stretch in found:
            for second in {*range(stretch.start, stretch.end, timezones.DAY), stretch.end - 1}:
                assert timezones._offset(zone, second) == stretch.offset, (name, year)

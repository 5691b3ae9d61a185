"""Sentences: examples, and that no two meanings share one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date
from itertools import product

import pytest
from hypothesis import given, settings

from headway.model.schedules.cron import Cron, parse
from headway.text.cron import sentence
from tests.model.test_cron_oracle import expressions
from tests.support.cron_oracle import Expression
from tests.support.properties import examples

BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("30 2 * * mon-fri", "at 02:30, Monday to Friday, Berlin time"),
        ("*/15 * * * *", "every 15 minutes"),
        ("* * * * *", "every minute"),
        ("0 */2 * * *", "every 2 hours, on the hour, Berlin time"),
        ("@hourly", "every hour, on the hour, Berlin time"),
        ("30 * * * *", "every hour, at 30 minutes past, Berlin time"),
        ("1 */6 * * *", "every 6 hours, at 1 minute past, Berlin time"),
        ("5-59/15 * * * *", "every 15 minutes from 5 past the hour, Berlin time"),
        ("0-10,30 * * * *", "every hour, at 0 to 10 and 30 minutes past, Berlin time"),
        ("30 */5 * * *", "every 5 hours from 00:30 to 20:30, Berlin time"),
        ("0 9-17/2 * * *", "every 2 hours from 09:00 to 17:00, Berlin time"),
        ("*/15 9-17/4 * * *", "every 15 minutes, but only in the hours 9, 13 and 17, Berlin time"),
        ("0 */6,3 * * *", "every hour, on the hour, but only in the hours 0, 3, 6, 12 and 18, Berlin time"),
        ("@daily", "at 00:00, every day, Berlin time"),
        ("0 9,17 * * *", "at 09:00 and 17:00, every day, Berlin time"),
        ("0 9-17 * * *", "from 09:00 to 17:00, every hour, every day, Berlin time"),
        ("*/15 9-17 * * mon-fri", "from 09:00 to 17:45, every 15 minutes, Monday to Friday, Berlin time"),
        ("* 2 * * sat,sun", "from 02:00 to 02:59, every minute, on Saturday and Sunday, Berlin time"),
        ("5,7 1,3,9,12 * * *", "at 5 and 7 minutes past, in the hours 1, 3, 9 and 12, every day, Berlin time"),
        ("0 9 1,15 * mon", "at 09:00, on day 1 and 15 of the month, or on Monday, Berlin time"),
        ("0 9 1 1 mon", "at 09:00, on day 1 of the month, or on Monday, but only in January, Berlin time"),
        (
            "0 9 */2 * mon",
            "at 09:00, on every 2nd day of the month from day 1 to day 31, but only on Monday, Berlin time",
        ),
        ("@monthly", "at 00:00, on day 1 of the month, Berlin time"),
        ("0 0 29 2 *", "at 00:00, on day 29 of February, Berlin time"),
        ("0 9 * jan-mar,dec *", "at 09:00, every day in January to March and December, Berlin time"),
        ("*/5 * * 6 *", "every 5 minutes, in June, Berlin time"),
        ("0 9 * 6 fri-sun", "at 09:00, Friday to Sunday, in June, Berlin time"),
        ("0 9 1-31 * mon", "at 09:00, every day, Berlin time"),
    ],
)
def test_sentences(text: str, said: str) -> None:
    assert sentence(parse(text), BERLIN) == said


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        ("UTC", "UTC"),
        ("Etc/UTC", "UTC"),
        ("America/Argentina/Buenos_Aires", "Buenos Aires time"),
        ("Etc/GMT+5", "Etc/GMT+5"),
        ("CET", "CET"),
        ("Japan", "Japan time"),
    ],
)
def test_zones(zone: str, said: str) -> None:
    assert sentence(parse("@daily"), zone) == f"at 00:00, every day, {said}"


Known = dict[str, tuple[str, tuple[object, ...]]]
DAYS = [date.fromordinal(number) for number in range(date(2024, 1, 1).toordinal(), date(2028, 1, 1).toordinal())]


def meaning(text: str) -> tuple[object, ...]:
    """When it comes, by the oracle's reading, on the days of four years."""
    read = Expression.of(text)
    return (read.minutes, read.hours, read.elapsed, tuple(read.on(day) for day in DAYS))


def times() -> Iterator[str]:
    minutes = [
        "*",
        "0",
        "1",
        "30",
        "59",
        "0,30",
        "10,40",
        "0,1",
        "0-2",
        "1-59",
        "*/2",
        "*/7",
        "*/15",
        "5-59/15",
        "0-45/15",
    ]
    minutes += ["*/30", "*/20", "*/25", "0,10,20,30,40", "0-10,30", "15,45", "1-59/2", "*/59", "0,59"]
    hours = ["*", "0", "2", "23", "0,12", "9-17", "9-17/1", "9-17/2", "9,11,13,15,17", "9-17/8", "9,17", "0-23", "*/1"]
    hours += [
        "*/2",
        "*/5",
        "0,5,10,15,20",
        "*/12",
        "*/13",
        "0,13",
        "*/6,3",
        "0,3,6,12,18",
        "22-23,0-5",
        "2,3",
        "1-23/2",
    ]
    return (f"{minute} {hour} * * *" for minute, hour in product(minutes, hours))


def dates() -> Iterator[str]:
    days = [
        "*",
        "1",
        "1,2",
        "1-3",
        "1,15",
        "*/2",
        "*/3",
        "1-31/2",
        "2-31/2",
        "1-31",
        "28-31",
        "29",
        "*/10",
        "1,11,21,31",
    ]
    months = ["*", "2", "1-3", "jan,mar", "*/2", "12", "1-11", "3"]
    weekdays = ["*", "mon", "mon-fri", "sat,sun", "0-7", "*/2", "*/3", "tue,thu,sat,sun", "fri-sun", "1,3,5", "sun-tue"]
    return (" ".join(("0 0", *parts)) for parts in product(days, months, weekdays))


@pytest.mark.parametrize("family", [times, dates])
def test_no_two_meanings_share_a_sentence(family: Callable[[], Iterator[str]]) -> None:
    known: Known = {}
    for text in family():
        assert_own(known, text, sentence(parse(text), BERLIN))


def assert_own(known: Known, text: str, said: str) -> None:
    meant = meaning(text)
    before, same = known.setdefault(said, (text, meant))
    assert meant == same, f"{before!r} and {text!r} are both: {said}"


SAID: Known = {}  # over all examples of one property


@settings(max_examples=examples(300), deadline=None)
@given(expressions)
def test_any_expression_has_a_sentence(text: str) -> None:
    parsed: Cron = parse(text)
    said = sentence(parsed, BERLIN)
    assert not re.search(
        r"[*/@]|\d-\d|\b(?:mon|tue|wed|thu|fri|sat|sun|jan|feb|mar|apr|jun|jul|aug|sep|oct|nov|dec)\b", said
    )
    assert said.startswith("every") == parsed.elapsed
    assert_own(SAID, text, said)

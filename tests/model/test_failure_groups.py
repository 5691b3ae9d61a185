"""Errors that are the same but for their details have one fingerprint; others keep their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.jobs.failure_groups import LONGEST, NO_TEXT, Failure, alike, fingerprint

SAME = {
    "numbers": ("timed out after 30 s (try 2 of 4)", "timed out after 45.5 s (try 1 of 4)"),
    "thousands and addresses": ("10.0.0.1:5432 lost 1,000 rows", "192.168.7.20:80 lost 12 rows"),
    "hex": ("<Job object at 0x7f3a>, commit 9f86d081884c", "<Job object at 0xdeadbeef>, commit 0cafe15b00b5"),
    "uuids": ("no job 550e8400-e29b-41d4-a716-446655440000", "no job 123E4567-E89B-12D3-A456-426614174000"),
    "paths": ("cannot open /tmp/a/b.txt here", "cannot open ./data/10.csv here"),
    "windows": (r"missing C:\Users\ada\x.txt", r"missing D:\y"),
    "quoted": ("KeyError: 'topic'", "KeyError: 'words of two'"),
    "double quotes": ('no column "a"', 'no column "b c"'),
    "times": ("late at 2026-01-02T03:04:05.123Z", "late at 2025-12-31 23:59:59+01:00"),
    "addresses": ("503 from https://a.example/x?y=1", "502 from http://b.example:8080/"),
    "blanks": ("two\nlines  here", "two lines here"),
    "where it happened": (
        "ValueError: no\n\nTraceback (most recent call last):\n a",
        "ValueError: no\n\nTraceback\n b",
    ),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_details_are_left_out(one: str, other: str) -> None:
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: no", "KeyError: no"),
        ("can't open, don't know", "can't read, don't know"),
        ("and/or", "either/or"),
        ("facade is decade", "facade is facade"),
    ],
)
def test_words_stay(one: str, other: str) -> None:
    assert fingerprint(one) != fingerprint(other)


def test_leftovers_are_for_people() -> None:
    text = "OSError: [Errno 2] can't open '/tmp/x' at 10:30 for 550e8400-e29b-41d4-a716-446655440000 on /srv/a/b"
    assert fingerprint(text) == "OSError: [Errno <n>] can't open <text> at <n> for <uuid> on <path>"
    assert fingerprint("") == fingerprint(" \n") == NO_TEXT


@given(st.text(max_size=2_000))
def test_any_text_has_one(text: str) -> None:
    found = fingerprint(text)
    assert 1 <= len(found) <= LONGEST
    assert "\n" not in found


def test_failures_are_grouped_by_kind_and_fingerprint() -> None:
    failures = [
        Failure(9, "b", "EXCEPTION", 90, "no file 9"),
        Failure(8, "a", "EXCEPTION", 95, "no file 8"),
        Failure(7, "a", "TIMEOUT", 70, "no file 7"),
        Failure(6, "a", "EXCEPTION", 60, "no file 6"),
        Failure(5, "a", None, 50, ""),
    ]
    first, *others = alike(failures)
    assert (first.text, first.kind, first.count) == ("no file <n>", "EXCEPTION", 3)
    assert (first.first_at, first.last_at, first.example.job_id) == (60, 95, 9)
    assert first.tasks == [("a", 2), ("b", 1)]
    assert [(one.kind, one.count) for one in others] == [("TIMEOUT", 1), (None, 1)]
    assert len({one.key for one in (first, *others)}) == 3
    assert alike(failures[1:])[0].key == first.key, "an address stays good"
    assert alike([]) == []

"""Texts that callers give to a parser: each takes little time, whatever is in it, and none ends in another error."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import BadInput
from headway.model import manifest
from headway.model.jobs import failure_groups
from headway.model.schedules import cron, crontab, timezones
from headway.model.values import toml
from headway.model.values.json import JSON_LIMIT, from_json
from headway.model.values.times import instant, seconds

LIMIT = JSON_LIMIT


def filled(begin: str, middle: str, end: str = "") -> str:
    return begin + middle * ((LIMIT - len(begin) - len(end)) // len(middle)) + end


def numbered(line: str, most: int = 1_000_000) -> str:
    lines: list[str] = []
    size = 0
    while len(lines) < most and size + len(line) + 6 < LIMIT:
        lines.append(line.format(n=len(lines)))
        size += len(lines[-1])
    return "".join(lines)


# Texts of 256 KiB, each the worst of its kind for tomllib or for what comes after it.
FILES = {
    "a key of many parts": filled("", "a.", "a = 1"),
    "a heading of many parts": filled("[", "a.", "a]"),
    "a key of many quoted parts": filled("", '"a" . ', "a = 1"),
    "an inner key of many parts": filled("x = {", "a.", "a = 1}"),
    "many keys of several parts": filled("[a.a.a.a.a.a.a.a]\n", "b.a.a.a.a.a.a.a = 1\n"),
    "deep lists": "a=" + "[" * 100_000,
    "deep lists that end": "a=" + "[" * 100_000 + "]" * 100_000,
    "deep tables": filled("a=", "{a="),
    "deep lists on many lines": filled("a=", "[\n"),
    "many headings": numbered("[a.b{n}.c]\n"),
    "many headings of many parts": numbered("[a.b{n}.c.d.e.f.g.h]\n"),
    "many entries": numbered("[[templates]]\n"),
    "many unknown tables": numbered("template{n} = 1\n"),
    "many unknown fields": "[[schedules]]\nname = 'a'\n" + numbered("field{n} = 1\n", 18_000),
    "many unknown fields of a target": "[[targets]]\nname = 'a'\n" + numbered("field{n} = 1\n", 18_000),
    "many wrong schedules": numbered("[[schedules]]\nname='{n}'\ncron='x'\ninterval='y'\n"),
    "a long number": filled("a = ", "1"),
    "a long hexadecimal number": filled("a = 0x", "f"),
    "a long fraction": filled("a = 1.", "1"),
    "many numbers": filled("a = [", "0,", "]"),
    "many lists": filled("a = [", "[],", "]"),
    "many tables in a list": filled("a = [", "{b=1},", "]"),
    "many strings": filled("a = [", "'',", "]"),
    "escapes": filled('a = "', r"\n", '"'),
    "quotes in a text": filled('a = """', r'""\"', '"""'),
    "quotes without an end": filled("", '"""a'),
    "a text without an end": filled('a = """', '""a'),
    "strings without an end": filled("", "'a\n"),
    "comments": filled("", "#\n"),
    "comments in a list": filled("a = [", "#\n", "]"),
    "blanks": filled("", " "),
    "lines": filled("", "\n"),
    "blank lines before a heading": filled("", " ", "[[x"),
}


def timed(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def refused(text: str) -> None:
    with pytest.raises(BadInput):
        manifest.read(text, "file")


@pytest.mark.parametrize("name", FILES)
def test_no_file_costs_more_than_a_plain_one(name: str) -> None:
    """A list of 130,000 numbers, which tomllib reads in 0.2 s, is the most expensive plain text."""
    text = FILES[name]
    assert len(text) <= LIMIT
    work = (lambda: refused(text)) if name not in EMPTY else (lambda: manifest.read(text, "file"))
    assert min(timed(work) for _ in range(2)) < 1.0


EMPTY = {"comments", "blanks", "lines"}


def test_a_refusal_names_the_line() -> None:
    for text, said in {
        "a = 1\n" + "a." * 20 + "a = 1": "file:2: a key has more than 10 parts",
        "a = '''\n\n'''\nb = " + "[" * 40: "file:4: brackets are nested more than 32 levels deep",
        "[a]\n" * 5_001: "file:5001: there are more than 5000 tables",
        "a = " + "9" * 5_000: "file: has a number of thousands of digits",
        "a = 0x" + "f" * 5_000: "file: has an integer outside 64 bits",
        "a = " + "[{a.a.a=" * 16 + "1" + "}]" * 16: "file: values are nested more than 64 levels deep",
    }.items():
        with pytest.raises(BadInput, match=said):
            toml.loads(text, file="file")


# Whatever dots, brackets and headings stand in strings and comments, they are not counted.
HARMLESS = [
    'a = "' + "." * 50 + "[" * 50 + '"',
    "a = '" + "." * 50 + "[" * 50 + "'",
    'a = """' + "\n[a]\n..........................." * 50 + '"""',
    "a = '''" + "\n[a]\n''..........................." * 50 + "'''",
    'a = """x""""\nb = """x"""""\nc = \'\'\'x\'\'\'\'\nd = "' + "." * 50 + '"',
    r'a = "\"' + "." * 50 + '"',
    r'a = """\"""' + "." * 50 + '"""',
    "# " + "." * 50 + "[" * 50 + "'\n  # '\n\na = 1",
    "a = [" + "1.5, " * 100 + "]",
    "a = [" + "\n[1],\n[2]," * 4_000 + "]",
    'a = ""\nb = \'\'\nc = """"""\nd = \'\'\'\'\'\'\n"e.f.g.h.i.j.k.l.m.n.o.p" = 1',
    "a.b.c.d.e.f.g.h.i.j = 1",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_strings_and_comments_are_heeded(text: str) -> None:
    assert len(toml.loads(text, file="file")) == len(tomllib.loads(text))


@given(st.text(alphabet="a.=[]{}\"'\\#\n ,1", max_size=40))
def test_the_bounds_change_no_small_file(text: str) -> None:
    """Every short text means the same with the bounds and without, or is refused by both."""
    try:
        expected: object = tomllib.loads(text)
    except ValueError:
        with pytest.raises(BadInput):
            toml.loads(text, file="file")
    else:
        assert toml.loads(text, file="file") == expected


@given(st.text(alphabet="a\"'\\\n#", max_size=30))
def test_no_string_hides_a_deep_key(text: str) -> None:
    """After any text that tomllib accepts, a key of many parts is refused by its parts."""
    try:
        tomllib.loads(f"a = {text}\n")
    except ValueError:
        return
    with pytest.raises(BadInput, match="parts"):
        toml.loads(f"a = {text}\n" + "b." * 20 + "b = 1", file="file")


# --- other parsers ------------------------------------------------------------------------------------------------

OTHERS: dict[str, Callable[[], object]] = {
    "deep JSON": lambda: from_json("[" * 250_000, field="body"),
    "deep JSON that ends": lambda: from_json("[" * 100_000 + "]" * 100_000, field="body"),
    "deep JSON objects": lambda: from_json(filled("", '{"a":', "1"), field="body"),
    "a long number in JSON": lambda: from_json(filled("", "1"), field="body"),
    "a long fraction in JSON": lambda: from_json(filled("[1e", "9", ",x]"), field="body"),
    "a long cron expression": lambda: cron.parse("*/7," * 300),
    "cron fields of many terms": lambda: cron.parse(",".join(["*/7"] * 240) + " * * * *x"),
    "a long number in cron": lambda: cron.parse("1" * 900 + " * * * *"),
    "a long zone": lambda: timezones.check_zone("a/" * 100_000),
    "a long duration": lambda: seconds(filled("", "1", "x"), field="timeout"),
    "blanks in a duration": lambda: seconds(filled("1d", " ", "x"), field="timeout"),
    "a long instant": lambda: instant(filled("2026-01-01T00:00:00.", "0", "x"), field="since"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_no_other_text_takes_long(name: str) -> None:
    def work() -> None:
        with pytest.raises(BadInput):
            OTHERS[name]()

    assert min(timed(work) for _ in range(3)) < 0.1


@pytest.mark.parametrize(
    "line",
    [
        "A=x" + " " * 100_000 + "x",
        "A" + " " * 100_000 + "=x",
        " " * 100_000 + "A",
        "* * * * * x" + " " * 100_000 + "x",
        "* * * * * " + "%" * 100_000,
        "* * * * * " + "cd &&" * 20_000,
        "#" + " " * 100_000 + "m",
        "'" * 100_000,
    ],
)
def test_no_line_of_a_crontab_takes_long(line: str) -> None:
    assert min(timed(lambda: crontab.read(line, zone="UTC")) for _ in range(3)) < 0.25


@pytest.mark.parametrize("error", ["\n" * LIMIT, "\n " * (LIMIT // 2), "x://" * (LIMIT // 4), "'" * LIMIT, "/" * LIMIT])
def test_no_error_takes_long_to_be_grouped(error: str) -> None:
    assert min(timed(lambda: failure_groups.fingerprint(error)) for _ in range(3)) < 0.1

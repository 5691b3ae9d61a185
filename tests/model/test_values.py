"""The validator: what it accepts comes back equal, what it refuses is named with its place and a remedy."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.errors import BadInput
from headway.model.values import json as value_json
from headway.model.values import names, suggestions, times

INT_MIN, INT_MAX = -(2**63), 2**63 - 1

good_text = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(INT_MIN, INT_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | good_text
)
good_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(good_text, inner, max_size=4), max_leaves=20
)
any_text = st.text(st.characters(exclude_categories=[]))
any_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | any_text
    | st.binary()
    | st.datetimes()
    | st.complex_numbers(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(any_text | st.integers(), inner, max_size=4)
        | st.frozensets(st.integers())
    ),
    max_leaves=20,
)


class Colour(StrEnum):
    RED = "red"


def refusal(function: Any, value: object, *, field: str = "params", **options: Any) -> BadInput:
    with pytest.raises(BadInput) as caught:
        function(value, field=field, **options)
    assert str(caught.value) == f"{caught.value.field} {caught.value.facts['problem']}"
    return caught.value


def attempt(function: Any, value: object, *, field: str) -> Any:
    """The answer, or the refusal, which must name a place inside `field` and be fit to be stored and shown."""
    try:
        return function(value, field=field)
    except BadInput as error:
        refused = error
    assert (refused.field or "").startswith(field)
    str(refused).encode()
    return refused


def listed(value: Any) -> Any:
    """The same value with lists for tuples, as JSON gives it back."""
    match value:
        case dict():
            return {key: listed(item) for key, item in value.items()}
        case list() | tuple():
            return [listed(item) for item in value]
    return value


class TestJson:
    @given(good_values)
    @example({"a": [INT_MIN, INT_MAX, 1e308, -0.0, 5e-324], "é\U0001f300": "\u2028\\u0000"})
    def test_good_values_come_back_equal(self, value: object) -> None:
        text = value_json.to_json(value, field="params")
        back = value_json.from_json(text, field="params")
        assert back == value
        assert repr(back) == repr(value), "1, 1.0 and True are equal but not the same"

    @given(any_values)
    def test_any_value_is_accepted_whole_or_refused(self, value: object) -> None:
        text = attempt(value_json.to_json, value, field="params")
        if not isinstance(text, BadInput):
            assert value_json.from_json(text.encode(), field="params") == listed(value)

    @given(any_text)
    @example("[" * 100_000)
    @example("9" * 5_000)
    @example('"\\ud800"')
    @example("\ufeff1")
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        value = attempt(value_json.from_json, text, field="params")
        if not isinstance(value, BadInput):
            assert value_json.from_json(value_json.to_json(value, field="params"), field="params") == value

    @given(st.binary())
    def test_any_bytes_are_read_or_refused(self, data: bytes) -> None:
        attempt(value_json.from_json, data, field="body")

    @pytest.mark.parametrize(
        ("value", "field", "says"),
        [
            (math.nan, "params", "NaN"),
            ({"a": [1, 2, 3, -math.inf]}, "params.a[3]", "infinite"),
            ({"a": {"b": "x\x00y"}}, "params.a.b", "NUL"),
            ({"a\x00": 1}, 'params["a\\u0000"]', "NUL"),
            ({"a": "\ud800"}, "params.a", "surrogate"),
            ({"\udfff": 1}, 'params["\\udfff"]', "surrogate"),
            ([2**63], "params[0]", "64 bits"),
            ([-(2**63) - 1], "params[0]", "64 bits"),
            ([10**5_000], "params[0]", "64 bits"),
            ({"a": {1: 2}}, "params.a", "key of type int"),
            ({"odd key": {3}}, 'params["odd key"]', "type set, which JSON cannot hold: pass a list"),
            ({"when": datetime(2026, 1, 1)}, "params.when", "datetime, which JSON cannot hold: pass value.isoformat()"),
            ([b"x"], "params[0]", "base64"),
            ((object(),), "params[0]", "type object"),
        ],
    )
    def test_refusals_name_the_place(self, value: object, field: str, says: str) -> None:
        error = refusal(value_json.to_json, value)
        assert error.field == field
        assert says in str(error)

    def test_subclasses_count_as_what_they_are_made_of(self) -> None:
        assert value_json.to_json(OrderedDict(a=Colour.RED, b=(1, 2)), field="params") == '{"a":"red","b":[1,2]}'

    def test_depth(self) -> None:
        value: Any = 1
        for _ in range(value_json.MAX_DEPTH):
            value = [value]
        text = value_json.to_json(value, field="params")
        assert value_json.from_json(text, field="params") == value
        assert "nested more than 32" in str(refusal(value_json.to_json, {"a": value}))
        assert "nested more than 32" in str(refusal(value_json.from_json, f"[{text}]"))

    def test_a_circle_is_refused_not_followed(self) -> None:
        circle: list[object] = []
        circle.append({"again": circle})
        assert "nested" in str(refusal(value_json.to_json, circle))

    def test_size_is_told_with_the_remedy(self) -> None:
        error = refusal(value_json.to_json, {"a": "x" * (300 * 1024 - 8)})
        assert str(error) == ("params are 300 KiB, the limit is 256 KiB: store the data elsewhere and pass a reference")
        assert str(refusal(value_json.to_json, "xyz", field="result", limit=4)).startswith(
            "result is 5 bytes, the limit is 4 bytes"
        )

    def test_size_counts_bytes_to_the_last_one(self) -> None:
        fits = "é" * 9
        assert value_json.to_json(fits, field="params", limit=20) == f'"{fits}"'
        assert value_json.from_json(f'"{fits}"', field="params", limit=20) == fits
        assert "21 bytes" in str(refusal(value_json.to_json, fits + "x", limit=20))
        assert "21 bytes" in str(refusal(value_json.from_json, f'"{fits}x"', limit=20))
        assert "256.1 KiB" in str(refusal(value_json.to_json, "x" * (value_json.JSON_LIMIT - 1)))

    def test_shared_lists_that_stand_for_gigabytes_are_refused_early(self) -> None:
        value: Any = []
        for _ in range(value_json.MAX_DEPTH - 1):
            value = [value, value]
        assert "over 1024 KiB" in str(refusal(value_json.to_json, value))
        assert "over 1024 KiB" in str(refusal(value_json.to_json, ["x" * 1_000_000] * 1_000_000))

    @pytest.mark.parametrize(
        ("text", "field", "says"),
        [
            ('{"a": 1, "a": 1}', "params", 'the key "a" twice'),
            ('{"x": [0, {"a": 1, "b": 2, "b": 3}]}', "params.x[1]", 'the key "b" twice'),
            ("[1, NaN]", "params[1]", "NaN"),
            ("[-Infinity]", "params[0]", "infinite"),
            ("[1e999]", "params[0]", "infinite"),
            ("9223372036854775808", "params", "64 bits"),
            ('{"a": "\\u0000"}', "params.a", "NUL"),
            ('["\\udc00"]', "params[0]", "surrogate"),
            ("", "params", "is not JSON: Expecting value (line 1, column 1)"),
            ('{"a": 1,\n "b": }', "params", "(line 2, column 7)"),
            ("{'a': 1}", "params", "(line 1, column 2)"),
            ("1 2", "params", "Extra data (line 1, column 3)"),
            ('"a\tb"', "params", "control character"),
        ],
    )
    def test_bad_texts(self, text: str, field: str, says: str) -> None:
        error = refusal(value_json.from_json, text)
        assert error.field == field
        assert says in str(error)

    def test_bytes_must_be_utf8(self) -> None:
        assert value_json.from_json('"é"'.encode(), field="body") == "é"
        assert "not UTF-8 text (byte 1)" in str(refusal(value_json.from_json, b'"\xff"'))

    def test_the_text_is_compact_and_plain(self) -> None:
        assert value_json.to_json({"topic": "Nebel über", "words": 800}, field="params") == (
            '{"topic":"Nebel über","words":800}'
        )

    @given(good_values)
    def test_every_reader_agrees(self, value: object) -> None:
        assert json.loads(value_json.to_json(value, field="params")) == value


class TestNames:
    @pytest.mark.parametrize("name", ["a", "desk-1", "a b", " ", "é", "x" * 200, "日本", "a\u00a0b"])
    def test_good(self, name: str) -> None:
        assert names.check_name(name, field="target") == name

    @pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\x00", "\x7f", "\x85", "\ud800", 5, None, b"x"])
    def test_bad(self, name: object) -> None:
        assert refusal(names.check_name, name, field="target").field == "target"

    @pytest.mark.parametrize("name", ["story.generate", "a", "A-b_c:9", "x" * 200])
    def test_good_task_names(self, name: str) -> None:
        assert names.check_task_name(name, field="task") == name

    @pytest.mark.parametrize("name", ["", "x" * 201, "a b", "a/b", "é", "a\n", "٣", 5, "<locals>"])
    def test_bad_task_names(self, name: object) -> None:
        refusal(names.check_task_name, name, field="task")

    @given(any_text)
    def test_names_are_never_changed(self, text: str) -> None:
        name = attempt(names.check_name, text, field="key")
        if not isinstance(name, BadInput):
            assert name.encode() == text.encode()

    def test_closest(self) -> None:
        assert suggestions.closest("slot", ["slots", "host"]) == "slots"
        assert suggestions.closest("zzz", ["slots", "host"]) is None


class TestPriority:
    @pytest.mark.parametrize("value", [0, 1, 100])
    def test_good(self, value: int) -> None:
        assert names.check_priority(value) == value

    @pytest.mark.parametrize("value", [-1, 101, True, False, 5.0, "5", None])
    def test_bad(self, value: object) -> None:
        with pytest.raises(BadInput, match="from 0 to 100") as caught:
            names.check_priority(value)
        assert caught.value.field == "priority"


class TestWholeNumbers:
    @pytest.mark.parametrize(
        ("text", "number"), [("0", 0), ("7", 7), (" 12 ", 12), ("007", 7), (str(INT_MAX), INT_MAX), ("0" * 19 + "5", 5)]
    )
    def test_good(self, text: str, number: int) -> None:
        assert names.whole(text, field="priority") == number

    @pytest.mark.parametrize(
        "text",
        [
            "",
            " ",
            "²",
            "٣",
            "1_000",
            "-1",
            "+1",
            "1.0",
            "1e3",
            "0x1",
            "1 2",
            "fog",
            str(INT_MAX + 1),
            "9" * 20,
            "9" * 5_000,
        ],
    )
    def test_bad(self, text: str) -> None:
        with pytest.raises(BadInput, match="must be a whole number") as caught:
            names.whole(text, field="group")
        assert caught.value.field == "group"
        assert len(str(caught.value)) < 120

    def test_within_bounds(self) -> None:
        assert [names.whole(text, field="rank", least=1, most=5) for text in ("1", "5")] == [1, 5]
        for text in ("0", "6"):
            with pytest.raises(BadInput, match="rank must be a whole number from 1 to 5, not") as caught:
                names.whole(text, field="rank", least=1, most=5)
            assert caught.value.facts["problem"] == f"must be a whole number from 1 to 5, not {text!r}"
        with pytest.raises(BadInput, match="a whole number of at least 1, not '0'"):
            names.whole("0", field="rank", least=1)

    @given(any_text)
    def test_any_text_is_a_number_or_refused(self, text: str) -> None:
        number = attempt(names.whole, text, field="rank")
        assert isinstance(number, BadInput) or 0 <= number <= INT_MAX


class TestDurations:
    @pytest.mark.parametrize(
        ("value", "seconds"),
        [
            ("10s", 10),
            ("5m", 300),
            ("1h30m", 5400),
            ("250ms", 0.25),
            ("2d", 172_800),
            ("1d2h3m4s5ms", 93_784.005),
            ("1.5h", 5400),
            ("1m500ms", 60.5),
            ("90", 90),
            ("0.5", 0.5),
            (" 1h 30m ", 5400),
            ("0", 0),
            (7, 7),
            (0.1, 0.1),
            (timedelta(hours=1, microseconds=1), 3600.000001),
            ("36525d", times.MAX_SECONDS),
        ],
    )
    def test_good(self, value: object, seconds: float) -> None:
        result = times.seconds(value, field="delay")
        assert result == seconds
        assert type(result) is float

    @pytest.mark.parametrize(
        ("value", "says"),
        [
            (-1, "negative"),
            ("-5", "negative"),
            ("-1h30m", "negative"),
            (timedelta(seconds=-1), "negative"),
            (math.nan, "not a duration"),
            (math.inf, "100 years"),
            ("36525d1ms", "100 years"),
            ("9" * 400, "100 years"),
            (10**400, "100 years"),
            (True, "not bool"),
            (None, "not NoneType"),
            ([], "not list"),
            ("", "not a duration"),
            (" ", "not a duration"),
            ("-", "not a duration"),
            ("-" * 5_000, "not a duration"),
            ("s", "not a duration"),
            ("5 minutes", "not a duration"),
            ("30m1h", "not a duration"),
            ("1h30", "not a duration"),
            ("1h1h", "not a duration"),
            ("1e3", "not a duration"),
            ("nan", "not a duration"),
            ("5M", "not a duration"),
            ("٣s", "not a duration"),
        ],
    )
    def test_bad(self, value: object, says: str) -> None:
        error = refusal(times.seconds, value, field="delay")
        assert error.field == "delay"
        assert says in str(error)
        assert "write it like 10s, 5m or 1h30m" in str(error)

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [
            (0, "0s"),
            (0.00025, "0.25ms"),
            (0.25, "250ms"),
            (1.5, "1.5s"),
            (60, "1m"),
            (5400, "1h30m"),
            (93_784.005, "1d2h3m4.005s"),
            (30 * 86_400, "30d"),
            (0.9999999, "1s"),
            (-90, "-1m30s"),
        ],
    )
    def test_text(self, seconds: float, text: str) -> None:
        assert times.duration_text(seconds) == text

    @given(st.floats(0, times.MAX_SECONDS - 1))
    def test_text_reads_back_to_the_microsecond(self, seconds: float) -> None:
        back = times.seconds(times.duration_text(seconds), field="delay")
        assert back == pytest.approx(seconds, abs=0.6e-6, rel=1e-15)

    @given(any_text)
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        seconds = attempt(times.seconds, text, field="delay")
        assert isinstance(seconds, BadInput) or 0 <= seconds <= times.MAX_SECONDS


class TestInstants:
    @pytest.mark.parametrize(
        ("value", "us"),
        [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01t00:00:01.5z", 1_500_000),
            ("1970-01-01 01:00:00+01:00", 0),
            ("1969-12-31T19:00:00-05:00", 0),
            ("1970-01-01T00:00:00.1234567Z", 123_456),
            ("2026-03-01T09:00:00Z", 1_772_355_600_000_000),
            ("1969-12-31T23:59:59.999999Z", -1),
            (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
            # The same wall clock twice in one night: fold tells them apart.
            (datetime(2025, 10, 26, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")), 1_761_438_600_000_000),
            (datetime(2025, 10, 26, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")), 1_761_442_200_000_000),
        ],
    )
    def test_good(self, value: object, us: int) -> None:
        assert times.instant(value, field="not_before") == us

    @pytest.mark.parametrize(
        ("value", "says"),
        [
            ("2026-03-01T09:00:00", "add Z for UTC, or an offset"),
            (datetime(2026, 3, 1), "has no time zone"),
            ("2026-03-01", "write it like 2026-03-01T09:00:00Z"),
            ("2026-03-01T09:00Z", "write it like"),
            ("tomorrow", "write it like"),
            ("2026-02-30T09:00:00Z", "not a time that exists"),
            ("2026-02-28T24:00:00Z", "not a time that exists"),
            ("2026-02-28T23:59:60Z", "not a time that exists"),
            ("2026-02-28T09:00:00+24:00", "write it like"),
            ("0001-01-01T00:00:00+01:00", "years 1 to 9999"),
            ("9999-12-31T23:59:59-01:00", "years 1 to 9999"),
            (1_772_355_600, "not int"),
            (None, "not NoneType"),
        ],
    )
    def test_bad(self, value: object, says: str) -> None:
        error = refusal(times.instant, value, field="not_before")
        assert error.field == "not_before"
        assert says in str(error)

    @pytest.mark.parametrize(
        ("us", "text"),
        [
            (0, "1970-01-01T00:00:00Z"),
            (1, "1970-01-01T00:00:00.000001Z"),
            (1_772_355_600_500_000, "2026-03-01T09:00:00.500000Z"),
            (-62_135_596_800_000_000, "0001-01-01T00:00:00Z"),
        ],
    )
    def test_text(self, us: int, text: str) -> None:
        assert times.instant_text(us) == text

    @given(st.datetimes(timezones=st.just(UTC)) | st.datetimes(timezones=st.timezones()))
    def test_text_reads_back(self, moment: datetime) -> None:
        us = attempt(times.instant, moment, field="at")
        if isinstance(us, BadInput):
            assert moment.year in (1, 9999)
        else:
            assert times.instant(times.instant_text(us), field="at") == us

    @given(any_text)
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        us = attempt(times.instant, text, field="at")
        assert isinstance(us, BadInput) or times.instant_text(us)


def test_the_text_is_that_of_the_library() -> None:
    value = {"é": [1, 2.5, None, True, '\n\u2028"', {"a": []}], "b": (1, 2), "c": -0.0, "long": 10**30}
    assert value_json.encode(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def test_without_the_librarys_own_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json.encoder, "c_make_encoder", None)
    assert value_json._encoder()({"é": [1, None]}) == '{"é":[1,null]}'

"""Params in one short line."""

from __future__ import annotations

import json

import pytest

from headway.text.params import LONGEST, LOOKED_AT, excerpt


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({}, ""),
        ({"topic": "fog", "words": 800}, "topic: fog, words: 800"),
        ({"topic": "two\nlines\tand \u202e more"}, "topic: two lines and more"),
        ({"deep": {"a": [1, None]}, "on": True}, 'deep: {"a": [1, null]}, on: true'),
        ({"key": {"$secret": "OPENAI"}, "from": {"$result": "first"}}, "key: secret OPENAI, from: result of first"),
        ({"headers": {"auth": {"$secret": "TOKEN"}}}, 'headers: {"auth": {"$secret": "TOKEN"}}'),
    ],
)
def test_params_in_a_line(params: dict[str, object], line: str) -> None:
    assert excerpt(json.dumps(params)) == line


def test_long_params_are_cut_and_never_read_whole() -> None:
    short = excerpt(json.dumps({"text": "x" * 300}))
    assert (len(short), short[-1]) == (LONGEST, "…")
    # As it comes out of the database: no more than its beginning, which is not JSON.
    beginning = json.dumps({"topic": "fog", "text": "y" * 5_000})[: LOOKED_AT + 1]
    assert excerpt(beginning).startswith('"topic": "fog", "text": "yyy')
    assert excerpt("[1, 2]") == "[1, 2]"

"""Params against signatures: what a function says it takes is what an enqueue may give it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, NotRequired, Optional, Required, TypedDict, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.engine.tasks.signature import Signature, check_params
from headway.errors import BadInput

if TYPE_CHECKING:
    from elsewhere import Context, Unknown  # type: ignore[import-not-found]

Words = NewType("Words", int)


class Colour(StrEnum):
    RED = "red"


class Chapter(TypedDict):
    title: str
    words: NotRequired[int]
    parts: NotRequired[list[Chapter]]


class Loose(TypedDict, total=False):
    a: Required[int]
    b: str


def generate(ctx: Context, topic: str, words: int = 800) -> dict[str, str]:
    return {}


def refusal(function: Callable[..., object], params: Any) -> BadInput:
    with pytest.raises(BadInput) as caught:
        check_params(function, params, task="story.generate")
    assert caught.value.code == "bad_params"
    return caught.value


def takes(annotation: Any) -> Callable[..., object]:
    """A function with one parameter `x` of this type."""

    def function(x):
        return x

    function.__annotations__["x"] = annotation
    return function


class TestNames:
    def test_params_come_back_as_given(self) -> None:
        signature = Signature(generate, task="story.generate")
        given = {"topic": "fog"}
        checked = signature.check(given)
        assert checked == {"topic": "fog"}, "defaults are not filled in"
        assert checked is not given
        assert signature.takes_context

    def test_one_wrong_type(self) -> None:
        error = refusal(generate, {"topic": "fog", "words": "many"})
        assert str(error) == "story.generate: params.words must be int, not str"
        assert error.field == "params.words"

    def test_all_problems_in_one_message(self) -> None:
        error = refusal(generate, {"topc": "fog", "words": None, "zzz": 1})
        assert str(error) == (
            "story.generate: params.topc is not a parameter of the task, did you mean topic?; "
            "params.words must be int, not None; "
            "params.zzz is not a parameter of the task; "
            "params.topic is missing"
        )
        assert error.field == "params.topc"
        assert [one["field"] for one in error.facts["errors"]] == [
            "params.topc",
            "params.words",
            "params.zzz",
            "params.topic",
        ]

    def test_many_problems_are_cut_short(self) -> None:
        error = refusal(takes(list[int]), {"x": ["a"] * 1_000})
        assert "params.x[19] must be int, not str; and 980 more" in str(error)
        assert "params.x[20]" not in str(error)

    @pytest.mark.parametrize("params", [None, [], "topic", 5])
    def test_params_must_be_a_mapping(self, params: object) -> None:
        assert refusal(generate, params).field == "params"

    def test_names_must_be_text(self) -> None:
        def anything(**params: Any) -> None: ...

        assert "names are text" in str(refusal(generate, {1: 2, "topic": "fog"}))
        assert "names are text" in str(refusal(anything, {1: 2}))

    def test_keywords_take_anything_but_named_ones_are_checked(self) -> None:
        def anything(words: int, **rest: int) -> None: ...

        assert check_params(anything, {"words": 1, "more": "x"}, task="t") == {"words": 1, "more": "x"}
        assert str(refusal(anything, {"words": "x", "more": 1})) == "story.generate: params.words must be int, not str"
        assert refusal(anything, {}).field == "params.words"

    def test_keyword_only(self) -> None:
        def only(*, a: int, b: int = 1) -> None: ...

        assert check_params(only, {"a": 1}, task="t") == {"a": 1}
        assert refusal(only, {"b": 1}).field == "params.a"


class TestContext:
    def test_found_by_name_or_type_in_the_first_place_only(self) -> None:
        def by_name(ctx, topic): ...
        def by_type(c: Context, topic): ...
        def by_text(c: "headway.Context", topic): ...  # type: ignore[name-defined] # noqa: F821, UP037
        def positional(ctx, /, topic): ...
        def without(topic): ...

        for function in (by_name, by_type, by_text, positional):
            assert Signature(function, task="t").takes_context
            assert check_params(function, {"topic": 1}, task="t") == {"topic": 1}
        assert not Signature(without, task="t").takes_context
        assert not Signature(lambda: None, task="t").takes_context

    def test_a_class_named_context(self) -> None:
        function = takes(type("Context", (), {}))
        assert Signature(function, task="t").takes_context

    def test_cannot_be_given_as_a_param(self) -> None:
        assert refusal(generate, {"topic": "fog", "ctx": 1}).field == "params.ctx"

    def test_must_come_first(self) -> None:
        def late(topic: str, ctx: Context) -> None: ...
        def keyword(*, ctx: Context) -> None: ...

        for function in (late, keyword):
            with pytest.raises(BadInput, match="make it the first parameter"):
                Signature(function, task="t")


class TestDeclaration:
    def test_positional_only_and_args_are_refused(self) -> None:
        def positional(a, /, b): ...
        def args(ctx, *items): ...

        with pytest.raises(BadInput, match="t: a is positional-only") as caught:
            Signature(positional, task="t")
        assert caught.value.field == "a"
        with pytest.raises(BadInput, match=r"t: \*items cannot be filled"):
            Signature(args, task="t")

    def test_a_callable_without_a_signature_is_refused(self) -> None:
        with pytest.raises(BadInput, match="cannot be read"):
            Signature(dict, task="t")

    def test_names_are_resolved_late(self) -> None:
        namespace: dict[str, Any] = {}
        exec("def later(x: 'Later'): ...", namespace)
        signature = Signature(namespace["later"], task="t")
        namespace["Later"] = int
        with pytest.raises(BadInput, match=r"params\.x must be int"):
            signature.check({"x": "y"})

    def test_a_name_that_cannot_be_resolved_leaves_the_others_checked(self) -> None:
        def half(a: Unknown, b: list[Unknown], c: int) -> None: ...

        assert check_params(half, {"a": object(), "b": 5, "c": 1}, task="t")
        assert refusal(half, {"a": 1, "b": 2, "c": "x"}).field == "params.c"

    def test_methods_wrapped_functions_and_callables(self) -> None:
        class Holder:
            def method(self, x: int) -> None: ...
            def __call__(self, x: int) -> None: ...

        @functools.wraps(generate)
        def wrapped(*args: Any, **kwargs: Any) -> Any: ...

        async def later(x: int) -> None: ...

        for function in (Holder().method, Holder(), later, functools.partial(takes(int))):
            assert check_params(function, {"x": 1}, task="t") == {"x": 1}
            assert refusal(function, {"x": "y"}).field == "params.x"
        assert refusal(wrapped, {"topic": 5}).field == "params.topic"


class Thing:
    """Of no type that JSON knows, and called the same in every process."""

    def __repr__(self) -> str:
        return "a thing"


THING = Thing()
GOOD: list[tuple[Any, list[Any]]] = [
    (int, [1, -(2**70)]),
    (float, [1.5, 1]),
    (str, ["", Colour.RED]),
    (bool, [True]),
    (None, [None]),
    (Any, [THING]),
    (object, [THING]),
    (list, [[1, "a"], (1,)]),
    (list[int], [[], [1, 2], (1, 2)]),
    (tuple[int, ...], [[1, 2, 3]]),
    (tuple[int, str], [[1, "a"]]),
    (dict, [{"a": THING}]),
    (dict[str, int], [{}, {"a": 1}]),
    (Mapping[str, float], [{"a": 1}]),
    (dict[str, list[int]], [{"a": [1]}]),
    (int | None, [1, None]),
    (Optional[str], ["a", None]),  # noqa: UP045
    (Union[int, list[str]], [1, ["a"]]),  # noqa: UP007
    (float | str, [1, 1.5, "a"]),
    (Literal["fast", "slow", 1, None], ["fast", 1, None]),
    (Literal["red"], [Colour.RED]),
    (Annotated[int, "any note"], [1]),
    (Words, [1]),
    (Chapter, [{"title": "a"}, {"title": "a", "words": 1, "parts": [{"title": "b"}]}]),
    (Loose, [{"a": 1}, {"a": 1, "b": "x"}]),
    (list[Any], [[1, THING]]),
    # Unknown to us: not checked.
    (Colour, ["red", 5]),
    (set[int], [[1], "a"]),
    (Literal[Colour.RED], ["blue"]),
    (int | Colour, ["anything"]),
    ([int], [5]),
    (5, ["x"]),
]

BAD: list[tuple[Any, Any, str]] = [
    (int, "1", "params.x must be int, not str"),
    (int, True, "params.x must be int, not bool"),
    (int, 1.0, "params.x must be int, not float"),
    (int, None, "params.x must be int, not None"),
    (float, True, "params.x must be float, not bool"),
    (float, "1", "params.x must be float, not str"),
    (str, 1, "params.x must be str, not int"),
    (bool, 1, "params.x must be bool, not int"),
    (None, 0, "params.x must be None, not int"),
    (list, "abc", "params.x must be list, not str"),
    (list[int], {"a": 1}, "params.x must be list, not dict"),
    (list[int], [1, "a"], "params.x[1] must be int, not str"),
    (list[list[int]], [[1], [2, None]], "params.x[1][1] must be int, not None"),
    (tuple[int, str], [1], "params.x must have 2 items, not 1"),
    (tuple[int, str], ["a", "b"], "params.x[0] must be int, not str"),
    (tuple[int, str], "ab", "params.x must be list, not str"),
    (dict, [1], "params.x must be dict, not list"),
    (dict[str, int], {"a": 1, "b c": "x"}, 'params.x["b c"] must be int, not str'),
    (dict[str, list[int]], {"a": [True]}, "params.x.a[0] must be int, not bool"),
    (int | None, "a", "params.x must be int or None, not str"),
    (int | str | None, 1.5, "params.x must be int, str or None, not float"),
    (list[int] | None, [1, "a"], "params.x[1] must be int, not str"),
    (list[int] | dict[str, int] | None, "a", "params.x must be list, dict or None, not str"),
    (Literal["a", "b"] | None, "c", "params.x must be 'a', 'b' or None, not str"),
    (Literal["fast", "slow"], "medium", "params.x must be one of 'fast', 'slow'"),
    (Literal[1], True, "params.x must be one of 1"),
    (Literal[1], 1.0, "params.x must be one of 1"),
    (Literal[True], 1, "params.x must be one of True"),
    (Literal["a"], [], "params.x must be one of 'a'"),
    (Annotated[int, "note"], "a", "params.x must be int, not str"),
    (Words, "a", "params.x must be int, not str"),
    (Chapter, [], "params.x must be dict, not list"),
    (Chapter, {}, "params.x.title is missing"),
    (Chapter, {"title": 1}, "params.x.title must be str, not int"),
    (Chapter, {"title": "a", "wrods": 1}, "params.x.wrods is not a key of Chapter, did you mean words?"),
    (Chapter, {"title": "a", "parts": [{"title": "b"}, {}]}, "params.x.parts[1].title is missing"),
    (Loose, {"b": "x"}, "params.x.a is missing"),
    (Chapter | None, {"title": 5}, "params.x.title must be str, not int"),
]


class TestTypes:
    @pytest.mark.parametrize(("annotation", "accepted"), GOOD, ids=lambda value: repr(value)[:40])
    def test_accepted(self, annotation: Any, accepted: list[Any]) -> None:
        for value in accepted:
            assert check_params(takes(annotation), {"x": value}, task="t")["x"] is value

    @pytest.mark.parametrize(("annotation", "value", "message"), BAD, ids=lambda value: repr(value)[:40])
    def test_refused(self, annotation: Any, value: object, message: str) -> None:
        assert str(refusal(takes(annotation), {"x": value})) == f"story.generate: {message}"

    @pytest.mark.parametrize(("annotation", "value"), [(annotation, value) for annotation, value, _ in BAD], ids=repr)
    def test_text_annotations_mean_the_same(self, annotation: Any, value: object) -> None:
        namespace: dict[str, Any] = {"It": annotation}
        exec("def function(x: 'It'): ...", namespace)
        refusal(namespace["function"], {"x": value})

    @pytest.mark.parametrize("annotation", [annotation for annotation, _ in GOOD[:-2]], ids=repr)
    @pytest.mark.parametrize("later", [{"$secret": "KEY"}, {"$result": "step one"}])
    def test_what_is_filled_in_later_fits_every_type(self, annotation: Any, later: dict[str, str]) -> None:
        check_params(takes(annotation), {"x": later}, task="t")

    def test_what_is_filled_in_later_may_be_deep_inside(self) -> None:
        params = {"x": {"title": "a", "parts": [{"title": {"$secret": "K"}}, {"$result": "s"}]}}
        assert check_params(takes(Chapter), params, task="t") == params
        assert refusal(takes(int), {"x": {"$secret": "K", "more": 1}}).field == "params.x"

    def test_a_default_of_none_allows_none(self) -> None:
        def function(x: int = None) -> None: ...  # type: ignore[assignment] # noqa: RUF013

        assert check_params(function, {"x": None}, task="t") == {"x": None}
        assert refusal(function, {"x": "a"}).field == "params.x"

    def test_a_circle_is_refused_not_followed(self) -> None:
        chapter: dict[str, Any] = {"title": "a"}
        chapter["parts"] = [chapter]
        assert "nested too deeply" in str(refusal(takes(Chapter), {"x": chapter}))

    @given(st.sampled_from([annotation for annotation, _ in GOOD]), st.from_type(object))
    def test_any_value_is_accepted_or_refused(self, annotation: Any, value: object) -> None:
        try:
            check_params(takes(annotation), {"x": value}, task="t")
        except BadInput as error:
            assert str(error).startswith("t: params.x")  # noqa: PT017

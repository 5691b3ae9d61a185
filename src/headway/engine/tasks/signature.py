"""Checks params against the signature of a task function.

A `Signature` is built at declaration; annotations are resolved at the first check, when every name they use exists. An
annotation that cannot be resolved is not checked.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Annotated, Any, Literal, NewType, NotRequired, Required, Union

from headway.errors import BadInput
from headway.model.values.json import step
from headway.model.values.suggestions import closest

MOST_PROBLEMS = 20

# A check returns None for a valid value, otherwise pairs of (place below the value, problem).
Problems = list[tuple[str, str]]
ParameterCheck = Callable[[object], Problems | None]

_UNRESOLVED = (NameError, AttributeError, TypeError, SyntaxError, LookupError, ValueError)
_FILLED_IN_LATER = ("$secret", "$result")
_SCALARS = (bool, int, float, str, types.NoneType)
_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_LISTS = (list, tuple)
_DICTS = (dict, Mapping)


@dataclass(frozen=True, slots=True)
class Rule:
    """A constraint beyond the type, in `Annotated[str, Rule(problem)]`.

    `problem` returns the problem of a value, or None.
    """

    problem: Callable[[Any], str | None]


class Signature:
    """The parameters of a task.

    `takes_context` is true if the first argument of the function is the context.
    """

    __slots__ = ("_checks", "_function", "_named", "_required", "open", "takes_context", "task")

    def __init__(self, function: Callable[..., object], *, task: str) -> None:
        parameters = _parameters(function, task)
        self.task = task
        self.takes_context = bool(parameters) and parameters[0].kind in _BY_POSITION and _is_context(parameters[0])
        if self.takes_context:
            parameters = parameters[1:]
        for parameter in parameters:
            _check_parameter(parameter, task)
        self.open = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters)
        self._function = function
        self._named = {p.name: p for p in parameters if p.kind is not Parameter.VAR_KEYWORD}
        self._required = frozenset(name for name, p in self._named.items() if p.default is Parameter.empty)
        self._checks: dict[str, ParameterCheck | None] | None = None

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters by name, without the context."""
        return list(self._named.values())

    def check(self, params: Mapping[str, object]) -> dict[str, object]:
        """Returns the params as given, or raises BadInput with all problems.

        Defaults are not filled in.
        """
        self.refuse_misfits(params)
        return dict(params)

    def refuse_misfits(self, params: Mapping[str, object]) -> None:
        """Raises BadInput with all problems of the params.

        It runs before every job, so empty params of a task without required ones return immediately.
        """
        if params == {} and not self._required:
            return
        if type(params) is not dict and not isinstance(params, Mapping):
            self._refuse([("", f"must be a dict of names and values, not {_type_name(params)}")])
        try:
            problems = self._problems(params)
        except RecursionError:
            problems = [("", "are nested too deeply")]
        if problems:
            self._refuse(problems)

    def _problems(self, params: Mapping[str, object]) -> Problems:
        checks = self._checks
        if checks is None:
            checks = self._checks = {name: _parameter_check(p, self._function) for name, p in self._named.items()}
        problems: Problems = []
        for name, value in params.items():
            if name not in checks:
                problems += self._unknown(name)
            elif (check := checks[name]) is not None and (found := check(value)) is not None:
                problems += _below(step(name), found)
        if self._required and not self._required <= params.keys():
            problems += [(step(name), "is missing") for name in self._named if name in self._required - params.keys()]
        return problems

    def _unknown(self, name: object) -> Problems:
        if not isinstance(name, str):
            return [("", f"has a name of type {_type_name(name)}: names are text")]
        if self.open:
            return []
        return [(step(name), f"is not a parameter of the task{_did_you_mean(name, self._named)}")]

    def _refuse(self, problems: Problems) -> typing.NoReturn:
        errors = [{"field": f"params{place}", "problem": problem} for place, problem in problems]
        shown = [f"{error['field']} {error['problem']}" for error in errors[:MOST_PROBLEMS]]
        if len(errors) > MOST_PROBLEMS:
            shown.append(f"and {len(errors) - MOST_PROBLEMS} more")
        message = f"{self.task}: {'; '.join(shown)}"
        raise BadInput(message, code="bad_params", field=errors[0]["field"], errors=errors[:MOST_PROBLEMS])


def check_params(function: Callable[..., object], params: Mapping[str, object], *, task: str) -> dict[str, object]:
    """Checks params once. A caller that checks often keeps the `Signature`."""
    return Signature(function, task=task).check(params)


# --- the function -------------------------------------------------------------------------------------------------


def _parameters(function: Callable[..., object], task: str) -> list[Parameter]:
    try:
        return list(_signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise BadInput(f"{task}: the signature cannot be read: {error}", code="bad_signature") from error


def _signature(function: Callable[..., object]) -> inspect.Signature:
    if sys.version_info >= (3, 14):  # evaluation would fail on names that exist for type checkers only
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def _is_context(parameter: Parameter) -> bool:
    annotation = parameter.annotation
    name = getattr(annotation, "__forward_arg__", getattr(annotation, "__name__", annotation))
    return parameter.name == "ctx" or str(name).strip("'\"").rpartition(".")[2] == "Context"


def _check_parameter(parameter: Parameter, task: str) -> None:
    if parameter.kind is Parameter.VAR_POSITIONAL:
        problem = f"*{parameter.name} cannot be filled, because params have names: take a list instead"
    elif parameter.kind is Parameter.POSITIONAL_ONLY:
        problem = f"{parameter.name} is positional-only, but params are passed by name: remove the / after it"
    elif _is_context(parameter):
        problem = f"{parameter.name} is the context: make it the first parameter"
    else:
        return
    raise BadInput(f"{task}: {problem}", code="bad_signature", field=parameter.name)


def _parameter_check(parameter: Parameter, function: Callable[..., object]) -> ParameterCheck | None:
    if parameter.annotation is Parameter.empty:
        return None
    check = _compile(_resolve(parameter.annotation, _names_of(function)))
    if check is None or parameter.default is not None:
        return check
    return lambda value: None if value is None else check(value)  # `words: int = None` allows None


def _names_of(function: Callable[..., object]) -> dict[str, Any]:
    code = inspect.unwrap(function)
    names: dict[str, Any] = getattr(code if hasattr(code, "__globals__") else type(code).__call__, "__globals__", {})
    return names


def _resolve(annotation: Any, names: dict[str, Any]) -> Any:
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, globalns=names, include_extras=True)["it"]
    except _UNRESOLVED:
        return Any


# --- from annotations to checks -----------------------------------------------------------------------------------


def _compile(hint: Any) -> ParameterCheck | None:
    """Returns the check of an annotation; None if it cannot be checked."""
    check = _compile_type(_bare(hint))
    for rule in getattr(hint, "__metadata__", ()):
        if isinstance(rule, Rule):
            check = _compile_rule(check, rule)
    return check


def _compile_rule(first: ParameterCheck | None, rule: Rule) -> ParameterCheck:
    def check(value: object) -> Problems | None:
        found = first(value) if first is not None else None
        if found is not None or _filled_in_later(value):
            return found
        problem = rule.problem(value)
        return [("", problem)] if problem else None

    return check


def _compile_type(hint: Any) -> ParameterCheck | None:
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if _among(origin, (Union, types.UnionType)):
        return _compile_union(args)
    if origin is Literal:
        return _compile_literal(args)
    if _is_typed_dict(hint):
        return _TypedDictCheck(hint)
    if _among(origin, _SCALARS):
        return _compile_scalars([hint])
    if _among(origin, _LISTS):
        return _compile_list(origin, args)
    return _compile_dict(args) if _among(origin, _DICTS) else None


def _bare(hint: Any) -> Any:
    """Returns the type inside Annotated, Required, NotRequired and NewType."""
    while True:
        if typing.get_origin(hint) in (Annotated, Required, NotRequired):
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, NewType):
            hint = hint.__supertype__
        else:
            return types.NoneType if hint is None else hint


def _among(hint: object, kinds: Sequence[object]) -> bool:
    # Compares by identity, because an annotation may be an object that cannot be compared.
    return any(hint is kind for kind in kinds)


def _compile_scalars(hints: Sequence[Any]) -> ParameterCheck:
    kinds = {*hints, int} if float in hints else set(hints)
    known, allow_bool = tuple(kinds), bool in kinds
    wanted = _either(_describe(hint) for hint in hints)

    def check(value: object) -> Problems | None:
        if type(value) in kinds or (isinstance(value, known) and (allow_bool or not isinstance(value, bool))):
            return None
        return _mismatch(value, wanted)

    return check


def _compile_literal(choices: tuple[Any, ...]) -> ParameterCheck | None:
    if any(type(choice) not in _SCALARS for choice in choices):
        return None
    wanted = f"must be one of {', '.join(map(repr, choices))}"

    def check(value: object) -> Problems | None:
        if isinstance(value, _SCALARS) and any(_same(value, choice) for choice in choices):
            return None
        return None if _filled_in_later(value) else [("", wanted)]

    return check


def _same(value: object, choice: object) -> bool:
    # 1, 1.0 and True are equal, so the types must agree too. A StrEnum counts as its text.
    return value == choice and isinstance(value, type(choice)) and isinstance(value, bool) is isinstance(choice, bool)


def _compile_list(origin: Any, args: tuple[Any, ...]) -> ParameterCheck:
    if origin is tuple and args and args[-1] is not Ellipsis:
        return _compile_fixed_tuple(args)
    item_check = _compile(args[0]) if args else None

    def check(value: object) -> Problems | None:
        if not isinstance(value, (list, tuple)):
            return _mismatch(value, "list")
        if item_check is None:
            return None
        return _gather(_index, ((index, item_check(item)) for index, item in enumerate(value)))

    return check


def _compile_fixed_tuple(args: tuple[Any, ...]) -> ParameterCheck:
    checks = [_compile(arg) for arg in args]

    def check(value: object) -> Problems | None:
        if not isinstance(value, (list, tuple)):
            return _mismatch(value, "list")
        if len(value) != len(checks):
            return [("", f"must have {len(checks)} items, not {len(value)}")]
        items = enumerate(zip(checks, value, strict=True))
        return _gather(
            _index, ((index, item_check(item)) for index, (item_check, item) in items if item_check is not None)
        )

    return check


def _compile_dict(args: tuple[Any, ...]) -> ParameterCheck:
    item_check = _compile(args[1]) if args else None

    def check(value: object) -> Problems | None:
        if not isinstance(value, Mapping):
            return _mismatch(value, "dict")
        if item_check is None or _filled_in_later(value):
            return None
        return _gather(_key, ((key, item_check(item)) for key, item in value.items()))

    return check


def _compile_union(members: tuple[Any, ...]) -> ParameterCheck | None:
    bare = [_bare(member) for member in members]
    if all(_among(member, _SCALARS) for member in bare):
        return _compile_scalars(bare)
    compiled = [_compile(member) for member in bare]
    checks = [check for check in compiled if check is not None]
    if len(checks) < len(compiled):
        return None
    wanted = _either(_describe(member) for member in bare)

    def check(value: object) -> Problems | None:
        answers = [member(value) for member in checks]
        if None in answers:
            return None
        # A member whose container type fits is the intended one, so its inner problems are reported.
        inside = [found for found in answers if found and all(place for place, _ in found)]
        return inside[0] if inside else _mismatch(value, wanted)

    return check


class _TypedDictCheck:
    """The check of a TypedDict.

    Fields are compiled at first use, because the type may contain itself.
    """

    __slots__ = ("_fields", "_hint", "_required")

    def __init__(self, hint: Any) -> None:
        self._hint = hint
        self._fields: dict[str, ParameterCheck | None] | None = None
        self._required: list[str] = []

    def __call__(self, value: object) -> Problems | None:
        fields = self._compile() if self._fields is None else self._fields
        if not isinstance(value, Mapping):
            return _mismatch(value, "dict")
        if not fields or _filled_in_later(value):
            return None
        missing = [(_key(name), "is missing") for name in self._required if name not in value]
        wrong = _gather(_key, ((name, self._item(fields, name, item)) for name, item in value.items()))
        return (missing + (wrong or [])) or None

    def _item(self, fields: dict[str, ParameterCheck | None], name: str, item: object) -> Problems | None:
        if name not in fields:
            return [("", f"is not a key of {self._hint.__name__}{_did_you_mean(name, fields)}")]
        check = fields[name]
        return None if check is None else check(item)

    def _compile(self) -> dict[str, ParameterCheck | None]:
        try:
            hints = typing.get_type_hints(self._hint, include_extras=True)
        except _UNRESOLVED:
            hints = {}
        # `__required_keys__` misses markers inside text annotations, so the markers themselves take precedence.
        markers = {name: typing.get_origin(hint) for name, hint in hints.items()}
        usual = self._hint.__required_keys__
        required = [n for n, mark in markers.items() if mark is Required or (mark is not NotRequired and n in usual)]
        self._required = required
        self._fields = fields = {name: _compile(hint) for name, hint in hints.items()}
        return fields


def _is_typed_dict(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, dict) and hasattr(hint, "__required_keys__")


# --- problems -----------------------------------------------------------------------------------------------------


def _gather(place: Callable[[Any], str], answers: Iterable[tuple[Any, Problems | None]]) -> Problems | None:
    return [problem for key, found in answers if found for problem in _below(place(key), found)] or None


def _below(place: str, problems: Problems) -> Problems:
    return [(place + deeper, problem) for deeper, problem in problems]


def _index(index: int) -> str:
    return f"[{index}]"


def _key(key: object) -> str:
    return step(str(key))


def _mismatch(value: object, wanted: str) -> Problems | None:
    return None if _filled_in_later(value) else [("", f"must be {wanted}, not {_type_name(value)}")]


def _filled_in_later(value: object) -> bool:
    """True for `{"$secret": …}` and `{"$result": …}`, which stand for a later value."""
    return isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in _FILLED_IN_LATER


def _did_you_mean(name: object, candidates: Iterable[str]) -> str:
    near = closest(name, candidates) if isinstance(name, str) else None
    return f", did you mean {near}?" if near else ""


def _type_name(value: object) -> str:
    return "None" if value is None else type(value).__name__


def _describe(hint: Any) -> str:
    origin = typing.get_origin(hint) or hint
    if origin is Literal:
        return ", ".join(map(repr, typing.get_args(hint)))
    if hint is types.NoneType:
        return "None"
    return str(getattr(origin, "__name__", origin))


def _either(names: Iterable[str]) -> str:
    *first, last = dict.fromkeys(names)
    return f"{', '.join(first)} or {last}" if first else last

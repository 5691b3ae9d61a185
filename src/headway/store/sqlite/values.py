"""Orders the values of a statement as SQLite's driver takes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import itemgetter

_PARAMETER = re.compile(r":([a-z_][a-z0-9_]*)")
Values = Callable[[dict[str, object]], tuple[object, ...]]


def parameters_of(text: str) -> list[str]:
    """Returns a statement's parameters by first occurrence, as SQLite numbers them."""
    return list(dict.fromkeys(_PARAMETER.findall(text)))


def values_of(text: str) -> Values:
    """Returns a function that picks a statement's values in that order.

    Given a dict, the driver would build a text of every parameter's name to look it up.
    """
    match parameters_of(text):
        case []:
            return lambda _: ()
        case [name]:
            return lambda params: (params[name],)
        case names:
            return itemgetter(*names)


class Calls(dict[str, list[tuple[str, Values]]]):
    """The statements of each name with their value functions, built at first use."""

    def __init__(self, texts: dict[str, list[str]]) -> None:
        self.texts = texts

    def __missing__(self, name: str) -> list[tuple[str, Values]]:
        calls = self[name] = [(text, values_of(text)) for text in self.texts[name]]
        return calls

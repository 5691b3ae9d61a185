"""The remedy of an error is data (`error.hint`): no code reads its own messages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "headway"
TAKES_APART = {"partition", "rpartition", "split", "rsplit", "removeprefix", "removesuffix", "startswith", "endswith"}
PATTERNS = {"match", "search", "fullmatch", "sub", "findall"}
# Other programs' errors that carry no code: httpcore's closed connection, libpq's refused login, SQLite's trigger
# (whose text is Headway's seal of a moved file), the number of an OSError, and the folding of a driver's white space.
OF_OTHERS = {
    "engine/webhooks/http_client.py",
    "store/postgres/errors.py",
    "store/sqlite/errors.py",
    "tasks/http.py",
    "cli/backend/connection.py",
    "store/transfer/copy.py",
}


def is_message(node: ast.expr) -> bool:
    """`str(error)`, under any of the names that an exception has here, also stripped."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "strip":
        return is_message(node.func.value)
    names = ("error", "exc", "refused", "problem", "moved", "unknown")
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "str"
        and isinstance(node.args[0], ast.Name)
        and node.args[0].id in names
    )


def parses(tree: ast.Module) -> Iterator[int]:
    """The lines that take a message apart, search it or match it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(operator, ast.In | ast.NotIn) for operator in node.ops):
            if any(is_message(side) for side in node.comparators):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            apart = node.func.attr in TAKES_APART and bool(node.args) and is_message(node.func.value)
            if apart or (node.func.attr in PATTERNS and any(is_message(argument) for argument in node.args)):
                yield node.lineno


def test_no_message_is_parsed() -> None:
    found = []
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        found += [f"{name}:{line}" for line in parses(ast.parse(path.read_text())) if name not in OF_OTHERS]
    assert found == []


def test_the_search_finds_what_it_looks_for() -> None:
    lines = [
        'str(error).rpartition(": ")',
        '"cannot be reached" in str(error)',
        "NOUN.match(str(error))",
        'str(error).strip().removeprefix("x")',
        '" ".join(str(error).split())',
    ]
    assert list(parses(ast.parse("\n".join(lines)))) == [1, 2, 3, 4]

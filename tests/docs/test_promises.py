"""The page of promises is true: every built row names tests that exist, and those for both databases run on both."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors, prose

PAGE = ROOT / "docs" / "promises.md"
EXPECTED = [
    *(f"INV-{n:03}" for n in range(1, 7)),
    *(f"DEC-{n:03}" for n in range(1, 13)),
    *(f"CON-{n:03}" for n in range(1, 5)),
    # The risk register.
    "SQLite write contention",
    "Missed triggers",
    "Orphaned jobs",
    "Queue starvation",
    "Fairness quotas",
    "Webhook retry loops",
    *(f"Scenario {n}" for n in range(1, 7)),
    # The schedule execution lifecycle.
    "Three-service collaboration",
    "Scheduler polling cycle",
    "Due schedule processing",
    "Step group queuing",
    "Step advancement",
    "Recovery mechanisms",
    "Execution state diagram",
    "Example: multi-step schedule",
    "Key design decisions",
    # Queueing and execution.
    "Key entities",
    "Queueing and claim",
    "Execution and heartbeat",
    "Cancellation",
    "Stale worker protection",
    "Resume flow",
    "Memory and database",
    "State diagram",
    "Operational notes",
]
UNBUILT = {"fairness quotas"}
BOTH = {"database_url", "empty_url", "shared_url"}  # fixtures that give each kind of database in turn
NOTHING = "–"
DETAILS = "## Sentence by sentence"
PROMISES = 185

_STATE = re.compile(r"built(?:; .*comes? with: (?P<rest>.+))?|comes with: (?P<all>.+)")
_TEST = re.compile(r"`(tests/[\w/]+\.py)((?:::\w+)+)`")


@dataclass(frozen=True)
class Row:
    id: str
    promise: str
    state: str
    unit: str
    both: str
    error: str
    page: str

    @property
    def built(self) -> bool:
        return self.state.startswith("built")

    @property
    def proofs(self) -> dict[str, str]:
        return {"unit": self.unit, "both": self.both, "error": self.error}


def read_rows() -> list[Row]:
    found = []
    for line in prose(PAGE):
        if line == DETAILS:
            break
        if line.startswith("| ") and not line.startswith(("| Id ", "| --- ")):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            assert len(cells) == 7, line
            found.append(Row(*(cell.strip("| ") for cell in cells)))
    return found


ROWS = read_rows()
BUILT = [row for row in ROWS if row.built]


# --- tests, without importing them --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    parameters: tuple[str, ...]
    is_fixture: bool


@cache
def functions_of(path: Path) -> dict[str, Function]:
    """The functions of a file by name, those of classes as `::Class::name`."""
    if not path.is_file():
        return {}
    return dict(_functions(ast.parse(path.read_text("utf-8")), ""))


def _functions(node: ast.Module | ast.ClassDef, place: str) -> Iterator[tuple[str, Function]]:
    for item in node.body:
        if isinstance(item, ast.ClassDef):
            yield from _functions(item, f"{place}::{item.name}")
        elif isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            parameters = tuple(arg.arg for arg in (*item.args.args, *item.args.kwonlyargs))
            decorators = " ".join(ast.unparse(decorator) for decorator in item.decorator_list)
            yield f"{place}::{item.name}", Function(parameters, "fixture" in decorators)


def exists(path: str, name: str) -> bool:
    return name.rpartition("::")[2].startswith("test_") and name in functions_of(ROOT / path)


def fixtures_of(path: Path) -> dict[str, Function]:
    """What a test of this file may ask for: its own fixtures, then those of the conftest files around it."""
    found: dict[str, Function] = {}
    folders = [folder for folder in path.parents if folder.is_relative_to(ROOT / "tests")]
    for file in [*(folder / "conftest.py" for folder in reversed(folders)), path]:
        fixtures = {name: function for name, function in functions_of(file).items() if function.is_fixture}
        found |= {name.removeprefix("::"): function for name, function in fixtures.items()}
    return found


def asks_for(path: str, name: str) -> set[str]:
    """All fixtures that a test gets, those of its fixtures included."""
    fixtures = fixtures_of(ROOT / path)
    todo, seen = list(functions_of(ROOT / path)[name].parameters), set[str]()
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.add(one)
            todo += fixtures[one].parameters if one in fixtures else ()
    return seen


def on_both(tests: list[tuple[str, str]]) -> bool:
    """Each test runs on both databases, or there is one for each of them."""
    kinds = {kind for _, name in tests for kind in ("sqlite", "postgres") if f"test_{kind}_" in name}
    alone = [(path, name) for path, name in tests if not re.search("test_(sqlite|postgres)_", name)]
    return kinds in (set(), {"sqlite", "postgres"}) and all(BOTH & asks_for(*test) for test in alone)


# --- the page -----------------------------------------------------------------------------------------------------


def test_every_rule_of_the_documents_has_one_row() -> None:
    assert [row.id for row in ROWS] == EXPECTED


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_the_state_is_built_or_names_what_is_missing(row: Row) -> None:
    state = _STATE.fullmatch(row.state)
    assert state is not None
    missing = state["rest"] or state["all"]
    assert missing is None or missing in UNBUILT
    assert row.promise
    if not row.built:
        assert {row.unit, row.both, row.error, row.page} == {NOTHING}


@pytest.mark.parametrize("row", BUILT, ids=lambda row: row.id)
def test_a_built_promise_names_tests_that_exist(row: Row) -> None:
    for kind, cell in row.proofs.items():
        tests = _TEST.findall(cell)
        assert tests, f"{row.id}: no {kind} test"
        assert _TEST.sub("", cell).replace("<br>", "").strip() == "", f"{row.id}: {cell} is not a list of tests"
        assert [path + name for path, name in tests if not exists(path, name)] == []


@pytest.mark.parametrize("row", BUILT, ids=lambda row: row.id)
def test_the_tests_on_both_databases_are_that(row: Row) -> None:
    assert on_both(_TEST.findall(row.both))


@pytest.mark.parametrize("row", BUILT, ids=lambda row: row.id)
def test_a_built_promise_has_its_page(row: Row) -> None:
    found = re.fullmatch(r"\[[^\]]+\]\(([^)#]+)(?:#([^)]*))?\)", row.page)
    assert found is not None
    page = PAGE.parent / found[1]
    assert page.is_file()
    assert found[2] is None or found[2] in anchors(page)


def read_sentences() -> list[list[str]]:
    lines = list(prose(PAGE))
    rows = [line for line in lines[lines.index(DETAILS) :] if re.match(r"\| \d+ \|", line)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in rows]


def test_every_sentence_of_the_documents_is_kept_or_its_deviation_named() -> None:
    sentences = read_sentences()
    assert [number for number, *_ in sentences] == [str(number) for number in range(1, PROMISES + 1)]
    built = {row.id for row in BUILT}
    for number, text, here, held_by in sentences:
        assert text, number
        if missing := re.fullmatch(r"comes with: (.+)", here):
            assert missing[1] in UNBUILT, number
            continue
        assert here == "works" or re.fullmatch(r"otherwise: \S.{20,}", here), f"{number}: {here}"
        page = re.fullmatch(r"\[([\w-]+\.md)\]\(\1\)", held_by)
        assert (PAGE.parent / page[1]).is_file() if page else held_by in built, f"{number}: {held_by}"


def test_the_check_can_fail() -> None:
    assert not exists("tests/docs/test_promises.py", "::test_that_is_not_there")
    assert not exists("tests/no_such_file.py", "::test_the_check_can_fail")
    assert not on_both([("tests/docs/test_promises.py", "::test_the_check_can_fail")])
    assert not on_both([("tests/store/test_fixtures.py", "::test_an_empty_sqlite_url_is_a_new_file")])
    assert on_both([("tests/store/test_fixtures.py", "::test_database_url_gives_both_kinds")])

"""Module and class names follow docs/style.md: nouns of the glossary, each class name once."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "headway"
# Words of the field that end in -ing, and things that have no other name.
GERUNDS_ALLOWED = {"paging", "rendering", "routing", "running", "stage_sharing", "testing", "tracing"}
# The deprecated endpoints keep their old nouns, and the checker shares no code with what it checks.
OWN_NAMES = ("api/legacy/", "verify/")
# Where a name for a longer type is given once; the command line and the schemas name options and fields so.
CORE = ("model/", "text/", "store/", "engine/", "tasks/")
# Suffixes that name no thing (house rule).
EMPTY_SUFFIXES = ("Manager", "Handler", "Processor", "Helper", "Util", "Utils")

# Words of the old vocabulary, and what the things are called now.
OLD_WORDS = {
    "wish": "request, option, entry or step",
    "wishes": "options",
    "wished": "requested",
    "said": "message, text or recorded",
    "told": "text, facts or recorded",
    "board": "replay state",
    "nudge": "wake",
    "nudged": "woken",
    "nudges": "wakes",
    "foresight": "dry run or forecast",
    "surroundings": "snapshot or session facts",
    "taste": "preferences",
    "ghost": "orphan",
    "hands": "slots",
}
# The name of the component in the OpenAPI document, which generated clients use.
OLD_NAMES_KEPT = {"StepWishSchema"}
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def modules() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if path.name not in ("__init__.py", "__main__.py")]


def classes() -> dict[str, list[str]]:
    """Class names, and the modules that define them."""
    found = defaultdict(list)
    for path in modules():
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(OWN_NAMES):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(name)
    return found


def test_no_module_is_named_by_a_gerund() -> None:
    gerunds = {path.stem for path in modules() if path.stem.endswith("ing")}
    assert gerunds <= GERUNDS_ALLOWED


def test_a_class_name_exists_once() -> None:
    assert {name: found for name, found in classes().items() if len(found) > 1} == {}


def aliases() -> dict[str, list[str]]:
    """Names that modules of the core give to longer types, and the modules."""
    found = defaultdict(list)
    for path in modules():
        name = path.relative_to(SOURCE).as_posix()
        for node in ast.parse(path.read_text()).body:
            if name.startswith(CORE) and isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
                (target,) = node.targets
                if isinstance(target, ast.Name) and target.id[:1].isupper() and not target.id.isupper():
                    found[target.id].append(name)
    return found


def test_the_name_of_a_type_exists_once_in_the_core() -> None:
    of_classes = classes()
    found = {name: [*where, *of_classes.get(name, ())] for name, where in aliases().items()}
    assert {name: where for name, where in found.items() if len(where) > 1} == {}


def test_no_class_name_ends_in_an_empty_word() -> None:
    assert [name for name in classes() if name.endswith(EMPTY_SUFFIXES)] == []


def test_no_identifier_has_a_word_of_the_old_vocabulary() -> None:
    for path in modules():
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type == tokenize.NAME and token.string not in OLD_NAMES_KEPT:
                old = {word.lower() for word in WORDS.findall(token.string)} & OLD_WORDS.keys()
                assert not old, f"{path}:{token.start[0]}: {token.string}: write {OLD_WORDS[old.pop()]}"


def test_every_module_says_in_its_first_line_what_it_holds() -> None:
    silent = [str(path.relative_to(SOURCE)) for path in modules() if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []

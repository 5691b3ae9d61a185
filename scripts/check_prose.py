"""Checks docstrings, comments, messages and pages against docs/style.md; prints each place that breaks a rule.

python scripts/check_prose.py [PATH ...]
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

ROOTS = ("src/headway", "docs", "scripts", "benchmarks", "examples", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
FIRST_LINE = 80
# Subjects without a noun of the glossary.
HEADLESS = re.compile(r"\b(somebody|nobody|whoever|anybody|everybody|whatever is|who(?= [a-z]+s\b))\b", re.IGNORECASE)
OPENING = re.compile(r"(?:^|[.:;] )(Who|What|Whoever|Whether|Nobody|Somebody)\b")
# Words of the old vocabulary, and the field's word for each.
OLD_WORDS = {
    "nudge": "wake-up",
    "nudged": "woken",
    "nudges": "wake-ups",
    "in vain": "without effect",
    "take leave": "deregister",
    "takes leave": "deregisters",
    "come into being": "be created",
    "comes into being": "is created",
    "let in": "admitted",
    "lets in": "admits",
    "in hand": "locked, or running",
    "sees to": "handles",
    "foresight": "forecast",
}
OLD = re.compile(r"\b(" + "|".join(map(re.escape, OLD_WORDS)) + r")\b", re.IGNORECASE)

# Python is parsed; of SQL the comments are read, of the others each line.
CHECKED = {".py", ".sql", ".html", ".js", ".css", ".md"}
SQL_COMMENT = re.compile(r"--(.*)")
# The page with the rules quotes sentences that break them.
RULES = Path("docs", "style.md")
# Names in quotation marks or after a dot are identifiers, not words.
CODE = re.compile(r"`[^`]*`")
NAMES = re.compile(r"(?<=[\w\]])\.[a-z_]+\b|(?<=[\"'])[a-z_]+(?=[\"'])")


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of every docstring."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = ast.get_docstring(node)
            if found:
                yield node.body[0].lineno, found


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of every comment."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type:", "#!")):
            yield token.start[0], token.string.lstrip("# ")


def messages(text: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of every message: what an error is raised with, a hint and a help text."""
    for node in ast.walk(ast.parse(text)):
        values = (
            [word.value for word in node.keywords if word.arg in ("hint", "help")] if isinstance(node, ast.Call) else []
        )
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            values += node.exc.args
        for part in (part for value in values for part in ast.walk(value)):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.lineno, part.value


def mistakes(text: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the reason of every sentence that breaks a rule."""
    for line, docstring in docstrings(text):
        first = docstring.partition("\n")[0]
        if len(first) > FIRST_LINE + 40:
            yield line, f"the first line has {len(first)} characters: say what it does in {FIRST_LINE}"
        yield from sentences(line, docstring)
    for line, part in [*comments(text), *messages(text)]:
        yield from sentences(line, part)


def sentences(line: int, text: str) -> Iterator[tuple[int, str]]:
    """Yields what is wrong with the sentences of one docstring or comment."""
    for match in HEADLESS.finditer(text):
        yield line, f"“{match[0]}”: name the worker, the caller, the job"
    for match in OPENING.finditer(text):
        yield line, f"a sentence begins with “{match[1]}”: begin with its subject"
    for match in OLD.finditer(text):
        yield line, f"“{match[0]}”: write “{OLD_WORDS[match[0].lower()]}”"


def page_mistakes(text: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the reason of every headless or old word in a template, a script or a stylesheet."""
    for number, line in enumerate(text.splitlines(), 1):
        visible = NAMES.sub(" ", line)
        for match in HEADLESS.finditer(visible):
            yield number, f"“{match[0]}”: name the worker, the caller, the job"
        for match in OLD.finditer(visible):
            yield number, f"“{match[0]}”: write “{OLD_WORDS[match[0].lower()]}”"


def markdown_mistakes(text: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the reason of every sentence of a page that breaks a rule; code is left out."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield from sentences(number, CODE.sub("code", line))


def sql_mistakes(text: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the reason of every sentence in a comment that breaks a rule."""
    for number, line in enumerate(text.splitlines(), 1):
        if comment := SQL_COMMENT.search(line):
            yield from sentences(number, comment[1].strip())


def check_of(path: Path) -> Callable[[str], Iterator[tuple[int, str]]]:
    """Returns the check for files of this kind."""
    return {".py": mistakes, ".md": markdown_mistakes, ".sql": sql_mistakes}.get(path.suffix, page_mistakes)


def files_below(root: Path) -> list[Path]:
    """Returns the files of a folder that are checked; a file stands for itself."""
    return sorted(filter(is_checked, root.rglob("*"))) if root.is_dir() else [root]


def is_checked(path: Path) -> bool:
    return path.suffix in CHECKED and not path.match(str(RULES))


def main(*roots: str) -> int:
    """Prints every mistake below these roots; returns 1 if there is one."""
    count = 0
    for root in roots or ROOTS:
        for path in files_below(Path(root)):
            for line, reason in sorted(check_of(path)(path.read_text())):
                print(f"{path}:{line}: {reason}")
                count += 1
    if count:
        print(f"{count} places break docs/style.md")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

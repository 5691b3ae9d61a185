"""Named SQL statements: read from the `.sql` files, and rendered for a dialect."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import resources

from headway.errors import HeadwayError

# The folders of shared statements. The other folders hold scripts: migrations, triggers, the move to PostgreSQL.
NOUNS = ("access", "groups", "jobs", "queue", "schedules", "webhooks", "verify")
DIALECTS = ("sqlite.sql", "postgres.sql")
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_FRAGMENT = re.compile(r"\{(\w+)(?:\(([^)]*)\))?\}")


def sql_text(*path: str) -> str:
    return resources.files("headway.store").joinpath("sql", *path).read_text("utf-8")


def sql_files(*path: str) -> list[str]:
    folder = resources.files("headway.store").joinpath("sql", *path)
    names = [item.name for item in folder.iterdir() if item.name.endswith(".sql")]
    # A shared file comes before its dialect files: `0001_x.sql`, then `0001_x.sqlite.sql`.
    return sorted(names, key=lambda name: (name.split(".")[0], name.count(".")))


def blocks(text: str) -> dict[str, str]:
    """The named statements of one file."""
    parts = _NAME.split(text)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def load_statements(dialect: str) -> dict[str, str]:
    """All named statements: the shared ones of every noun, then what this dialect redefines."""
    named: dict[str, str] = {}
    for folder in ((), *((noun,) for noun in NOUNS)):
        for file in sql_files(*folder):
            if file not in DIALECTS:
                fresh = blocks(sql_text(*folder, file))
                twice = named.keys() & fresh.keys()
                if twice:
                    raise HeadwayError(f"{'/'.join((*folder, file))} names a statement twice: {sorted(twice)}")
                named.update(fresh)
    named.update(blocks(sql_text(f"{dialect}.sql")))
    return named


def render(text: str, fragments: Mapping[str, str | Callable[[str], str]]) -> str:
    """Replaces `{name}` and `{name(arguments)}` by the dialect's text."""

    def one(match: re.Match[str]) -> str:
        fragment = fragments[match[1]]
        return fragment if isinstance(fragment, str) else fragment(match[2] or "")

    return _FRAGMENT.sub(one, text)


def statements_of(text: str) -> list[str]:
    """The statements of a named block; comments go, so that the text is the same for every caller."""
    bare = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return [part.strip() for part in bare.split(";\n") if part.strip().rstrip(";")]

"""Errors that are the same but for their details: texts made comparable, and failures grouped by them. Pure."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

# What is looked at of an error, and what is left of it. The head says what went wrong, the rest is where.
LOOKED_AT = 500
LONGEST = 300
NONE_SAID = "no error text"
_TRACEBACK = re.compile(r"\n\s*\n|\nTraceback \(most recent call last\)")
_BLANK = re.compile(r"\s+")
# The first that fits wins: an address holds a path, a path holds numbers.
_DETAILS = re.compile(
    r"""
    (?P<url>\b[a-z]{2,12}://[^\s"'<>]+)
  | (?P<uuid>\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b)
  | (?P<time>\b\d{4}-\d\d-\d\d(?:[t ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:z|[+-]\d\d:?\d\d)?)?)
  | (?P<text>(?<!\w)'[^'\n]{0,300}'(?!\w) | "[^"\n]{0,300}" | `[^`\n]{0,300}`)
  | (?P<path>\b[a-z]:\\[^\s"'<>|]+ | (?<![\w/.])\.{0,2}/[\w.@%+~-]+(?:/[\w.@%+~-]*)*)
  | (?P<hex>\b0x[0-9a-f]+\b | \b(?=[a-f]{0,40}\d)[0-9a-f]{8,}\b)
  | (?P<n>\d+(?:[.,:]\d+)*)
    """,
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One run that failed. `solved`: it was tried again, or resumed, and that went well, or somebody resolved it."""

    job_id: int
    task: str
    kind: str | None
    at: int
    error: str
    solved: bool = False


@dataclass(frozen=True, slots=True)
class Alike:
    """Failures of one kind whose errors differ in details only. `key` names them in an address."""

    key: str
    kind: str | None
    text: str
    failures: tuple[Failure, ...]

    @property
    def count(self) -> int:
        return len(self.failures)

    @property
    def example(self) -> Failure:
        """The latest."""
        return self.failures[0]

    @property
    def solved(self) -> int:
        """How many of them came right in the end."""
        return sum(one.solved for one in self.failures)

    @property
    def first_at(self) -> int:
        return min(one.at for one in self.failures)

    @property
    def last_at(self) -> int:
        return max(one.at for one in self.failures)

    @property
    def tasks(self) -> list[tuple[str, int]]:
        """Whose they are, and how many each."""
        return Counter(one.task for one in self.failures).most_common()


# A page that follows what happens asks again and again about the same errors.
@lru_cache(maxsize=4_096)
def fingerprint(error: str) -> str:
    """What is left of an error without its numbers, hex, uuids, times, addresses, paths and quoted values."""
    head = _TRACEBACK.split(error[:LOOKED_AT].strip(), maxsplit=1)[0]
    plain = _DETAILS.sub(lambda found: f"<{found.lastgroup}>", head)
    return _BLANK.sub(" ", plain)[:LONGEST].strip() or NONE_SAID


def alike(failures: Iterable[Failure]) -> list[Alike]:
    """Failures by their fingerprints, what happened most often first. Given, and kept, with the latest first."""
    found: dict[tuple[str | None, str], list[Failure]] = {}
    for one in failures:
        found.setdefault((one.kind, fingerprint(one.error[:LOOKED_AT])), []).append(one)
    groups = [Alike(_key(kind, text), kind, text, tuple(members)) for (kind, text), members in found.items()]
    return sorted(groups, key=lambda group: (-group.count, -group.last_at, group.key))


def _key(kind: str | None, text: str) -> str:
    return hashlib.sha256(f"{kind} {text}".encode("utf-8", "replace")).hexdigest()[:12]

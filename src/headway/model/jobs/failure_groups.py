"""Groups failures whose errors differ only in details such as numbers and paths. Pure."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

# Characters of an error that are read, and characters of a fingerprint. An error's head says what went wrong.
LOOKED_AT = 500
LONGEST = 300
NO_TEXT = "no error text"
_TRACEBACK = re.compile(r"\n\s*\n|\nTraceback \(most recent call last\)")
_BLANK = re.compile(r"\s+")
# The first match wins, because an address contains a path and a path contains numbers.
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
    """One failed run. `solved` means that a retry or a resume succeeded, or that a person resolved it."""

    job_id: int
    task: str
    kind: str | None
    at: int
    error: str
    solved: bool = False


@dataclass(frozen=True, slots=True)
class Alike:
    """Failures of one kind whose errors differ only in details. `key` identifies them in a URL."""

    key: str
    kind: str | None
    text: str
    failures: tuple[Failure, ...]

    @property
    def count(self) -> int:
        return len(self.failures)

    @property
    def example(self) -> Failure:
        """Returns the latest failure."""
        return self.failures[0]

    @property
    def solved(self) -> int:
        """Returns how many of the failures are solved."""
        return sum(failure.solved for failure in self.failures)

    @property
    def first_at(self) -> int:
        return min(failure.at for failure in self.failures)

    @property
    def last_at(self) -> int:
        return max(failure.at for failure in self.failures)

    @property
    def tasks(self) -> list[tuple[str, int]]:
        """Returns the tasks that failed, each with its count, the most frequent first."""
        return Counter(failure.task for failure in self.failures).most_common()


# A live page computes the fingerprints of the same errors again and again.
@lru_cache(maxsize=4_096)
def fingerprint(error: str) -> str:
    """Replaces numbers, hex, UUIDs, times, URLs, paths and quoted values of an error by placeholders."""
    head = _TRACEBACK.split(error[:LOOKED_AT].strip(), maxsplit=1)[0]
    plain = _DETAILS.sub(lambda match: f"<{match.lastgroup}>", head)
    return _BLANK.sub(" ", plain)[:LONGEST].strip() or NO_TEXT


def alike(failures: Iterable[Failure]) -> list[Alike]:
    """Groups failures by fingerprint, the largest group first; keeps their order, which is latest first."""
    found: dict[tuple[str | None, str], list[Failure]] = {}
    for failure in failures:
        found.setdefault((failure.kind, fingerprint(failure.error[:LOOKED_AT])), []).append(failure)
    groups = [Alike(_key(kind, text), kind, text, tuple(members)) for (kind, text), members in found.items()]
    return sorted(groups, key=lambda group: (-group.count, -group.last_at, group.key))


def _key(kind: str | None, text: str) -> str:
    return hashlib.sha256(f"{kind} {text}".encode("utf-8", "replace")).hexdigest()[:12]

"""How things stand, in one sentence: what a person wants to know first, the most urgent of it.

A job is in line from its creation until it begins: it waits for its turn (QUEUED), for its time (SCHEDULED), or for its
stage or a person (WAITING).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Headline:
    """`tone`: `bad` and `held` ask somebody to act, `good` does not. `command`: what helps."""

    tone: str
    text: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What is counted for it. `queued` of those `in_line` could start as far as their time and stage go. `calls` are
    direct calls under way, `holds` what programs outside have reserved. `at_least`: there is more in line."""

    running: int
    queued: int
    held: int
    workers: int
    paused: bool = False
    in_line: int = 0
    calls: int = 0
    holds: int = 0
    at_least: bool = False


def headline(seen: Standing) -> Headline:
    if seen.queued and not seen.workers:
        return Headline("bad", f"{_capital(_line(seen))} and no worker is alive.", "headway work")
    if seen.held:
        who = "1 job needs" if seen.held == 1 else f"{seen.held:,} jobs need"
        return Headline("held", f"{who} a decision. {_going(seen)}")
    return Headline("held" if seen.paused else "good", _going(seen))


def _going(seen: Standing) -> str:
    if seen.paused:
        return "The queue is paused."
    at_work = _at_work(seen)
    if at_work:
        return f"{_capital(at_work)}, {_line(seen)}."
    return f"Nothing runs yet, {_line(seen)}." if _count(seen) else "All quiet: nothing runs, nothing is in line."


def _at_work(seen: Standing) -> str:
    """`2 jobs and 1 direct call run, 1 hold is kept`; empty if there is nothing."""
    counts = ((seen.running, "job"), (seen.calls, "direct call"))
    runners = [f"{count:,} {word}{'' if count == 1 else 's'}" for count, word in counts if count]
    runs = "runs" if seen.running + seen.calls == 1 else "run"
    found = [f"{' and '.join(runners)} {runs}"] if runners else []
    if seen.holds:
        found.append("1 hold is kept" if seen.holds == 1 else f"{seen.holds:,} holds are kept")
    return ", ".join(found)


def _count(seen: Standing) -> int:
    return max(seen.in_line, seen.queued)


def _line(seen: Standing) -> str:
    count = _count(seen)
    if not count:
        return "nothing is in line"
    return "1 job is in line" if count == 1 else f"{count:,}{'+' if seen.at_least else ''} jobs are in line"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]

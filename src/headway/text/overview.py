"""Summarises the installation in one sentence, the most urgent fact first. Pure.

A job is in line from its creation until it starts: QUEUED, SCHEDULED or WAITING.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.model.checks import Remedy
from headway.text.findings import NO_WORKER


@dataclass(frozen=True, slots=True)
class Headline:
    """The summary. The tones `bad` and `held` ask a person to act, `good` does not."""

    tone: str
    text: str
    remedy: Remedy | None = None


@dataclass(frozen=True, slots=True)
class OverviewCounts:
    """The counts behind the summary.

    `queued` is the part of `in_line` whose time and stage allow a start. `calls` are active direct calls, `holds` are
    reservations of outside programs. `at_least` means that the count of `in_line` stopped early.
    """

    running: int
    queued: int
    held: int
    workers: int
    paused: bool = False
    in_line: int = 0
    calls: int = 0
    holds: int = 0
    at_least: bool = False


def headline(seen: OverviewCounts) -> Headline:
    if seen.queued and not seen.workers:
        return Headline(NO_WORKER.tone, f"{_capital(_line(seen))} and {NO_WORKER.sentence}.", NO_WORKER.remedy)
    if seen.held:
        who = "1 job needs" if seen.held == 1 else f"{seen.held:,} jobs need"
        return Headline("held", f"{who} a decision. {_going(seen)}")
    return Headline("held" if seen.paused else "good", _going(seen))


def _going(seen: OverviewCounts) -> str:
    if seen.paused:
        return "The queue is paused."
    at_work = _at_work(seen)
    if at_work:
        return f"{_capital(at_work)}, {_line(seen)}."
    return f"Nothing runs yet, {_line(seen)}." if _count(seen) else "Idle: nothing runs, nothing is in line."


def _at_work(seen: OverviewCounts) -> str:
    """Returns `2 jobs and 1 direct call run, 1 reservation is active`; empty if nothing runs."""
    counts = ((seen.running, "job"), (seen.calls, "direct call"))
    runners = [f"{count:,} {word}{'' if count == 1 else 's'}" for count, word in counts if count]
    runs = "runs" if seen.running + seen.calls == 1 else "run"
    parts = [f"{' and '.join(runners)} {runs}"] if runners else []
    if seen.holds:
        parts.append("1 reservation is active" if seen.holds == 1 else f"{seen.holds:,} reservations are active")
    return ", ".join(parts)


def _count(seen: OverviewCounts) -> int:
    return max(seen.in_line, seen.queued)


def _line(seen: OverviewCounts) -> str:
    count = _count(seen)
    if not count:
        return "nothing is in line"
    return "1 job is in line" if count == 1 else f"{count:,}{'+' if seen.at_least else ''} jobs are in line"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]

"""How things stand, in one sentence: what a person wants to know first, the most urgent of it."""

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
    """What is counted for it. `queued` are jobs that could start as far as their time and stage go."""

    running: int
    queued: int
    held: int
    workers: int
    paused: bool = False


def headline(seen: Standing) -> Headline:
    if seen.queued and not seen.workers:
        return Headline("bad", f"{_jobs(seen.queued)} and no worker is alive.", "headway work")
    if seen.held:
        who = "1 job needs" if seen.held == 1 else f"{seen.held:,} jobs need"
        return Headline("held", f"{who} a decision. {_going(seen)}")
    return Headline("held" if seen.paused else "good", _going(seen))


def _jobs(count: int) -> str:
    return "1 job waits" if count == 1 else f"{count:,} jobs wait"


def _going(seen: Standing) -> str:
    if seen.paused:
        return "The queue is paused."
    if seen.running:
        runs = "1 job runs" if seen.running == 1 else f"{seen.running:,} jobs run"
        return f"{runs}, {_jobs(seen.queued)}." if seen.queued else f"{runs}, nothing waits."
    return f"Nothing runs yet, {_jobs(seen.queued)}." if seen.queued else "All quiet: nothing runs, nothing waits."

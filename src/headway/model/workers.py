"""How a worker stands, in words: what is known of its process, its lease, and what it is doing about new work. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Standing:
    """`word` names it, `tone` colours it, `text` says what that means. `alive`: it holds its jobs."""

    word: str
    tone: str
    text: str
    alive: bool


_ALIVE = {
    "live": ("good", "It takes work."),
    "draining": ("held", "It takes no new work, and ends when its jobs have."),
    "stuck": ("bad", "Work in it does not stop: it takes no new work, and ends itself when its other jobs are done."),
}


def standing(state: str, *, left: bool, has_lease: bool, process: bool) -> Standing:
    """`state` is what it said last; `process`: as far as one can see from here, it is there."""
    if left or state == "gone":
        return Standing("gone", "quiet", "It left, or was given up; what it ran has been seen to.", False)
    if not has_lease:
        text = "It has not renewed its lease. Once somebody has watched that for a whole lease, its jobs count as lost."
        return Standing("silent", "bad", text, False)
    if not process:
        return Standing("dead", "bad", "Its process is gone. Its jobs count as lost with the next recovery.", False)
    tone, text = _ALIVE.get(state, ("quiet", ""))
    return Standing(state, tone, text, True)

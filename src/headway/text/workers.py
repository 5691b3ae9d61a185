"""Sentences about a worker: its process, its lease, and its readiness for new jobs. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The status of a worker: a word, a tone, an explanation. `alive` means that it keeps its jobs."""

    word: str
    tone: str
    text: str
    alive: bool


_ALIVE = {
    "live": ("good", "It takes work."),
    "paused": (
        "bad",
        "It could not start the work it claimed, and claims nothing for a while. It tries again by itself.",
    ),
    "draining": ("held", "It takes no new work, and ends when its jobs have."),
    "stuck": ("bad", "Work in it does not stop: it takes no new work, and ends itself when its other jobs are done."),
}


def standing(state: str, *, left: bool, has_lease: bool, process: bool, note: str | None = None) -> WorkerStatus:
    """Returns the status of a worker.

    `state` is what it stored last, `note` the reason. `process` False means that its process is known to be gone.
    """
    status = _standing(state, left=left, has_lease=has_lease, process=process)
    return status if note is None else replace(status, text=f"{status.text} It said: {note}.")


def _standing(state: str, *, left: bool, has_lease: bool, process: bool) -> WorkerStatus:
    if left or state == "gone":
        return WorkerStatus("gone", "quiet", "It left, or was given up; its jobs were recovered.", False)
    if not has_lease:
        text = "It has not renewed its lease. Once another process observed that for a whole lease, its jobs are lost."
        return WorkerStatus("silent", "bad", text, False)
    if not process:
        return WorkerStatus("dead", "bad", "Its process is gone. Its jobs count as lost with the next recovery.", False)
    tone, text = _ALIVE.get(state, ("quiet", ""))
    return WorkerStatus(state, tone, text, True)

"""The examination of an installation: one check after the other, each for so long, none in the way of the next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from headway.errors import HeadwayError, Unreachable
from headway.model.diagnosis import Answer, Finding, away, broken, skipped

Check: TypeAlias = Callable[[], Answer]
# A check that hangs (a disk that is gone, a server that stands still) is left behind after this.
SECONDS = 6.0


class Examination:
    """Asks one check after the other and keeps the answers."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.findings: list[Finding] = []
        self.away: str | None = None
        self.hung = False

    def note(self, name: str, answer: Answer) -> Answer:
        if answer.unreachable:
            self.away = "the database cannot be asked"
        self.findings.append(Finding(name, answer))
        return answer

    def ask(self, name: str, check: Check, seconds: float | None = None) -> Answer:
        return self.note(name, self._answer(check, seconds or self.seconds) or self._no_answer(seconds))

    def ask_database(self, name: str, check: Check, seconds: float | None = None) -> Answer:
        """As `ask`, for what only the database knows: once it gave no answer, it is not asked again."""
        if self.away is not None:
            return self.note(name, skipped(self.away))
        found = self._answer(check, seconds or self.seconds)
        if found is not None:
            return self.note(name, found)
        answer = self._no_answer(seconds)
        return self.note(
            name, away(answer.detail, "see what keeps the database from answering: its disk, its server, a lock")
        )

    def _no_answer(self, seconds: float | None) -> Answer:
        return broken(f"no answer within {seconds or self.seconds:g} s", "see whether a disk or a server stands still")

    def _answer(self, check: Check, seconds: float) -> Answer | None:
        """None if it takes too long. What hangs cannot be ended from outside: its thread ends with the process."""
        found: list[Answer] = []
        thread = threading.Thread(target=lambda: found.append(answered(check)), name="headway-look", daemon=True)
        thread.start()
        thread.join(seconds)
        self.hung = self.hung or thread.is_alive()
        return found[0] if found else None


def answered(check: Check) -> Answer:
    """What keeps a check from being made is its answer."""
    try:
        return check()
    except Unreachable as error:
        return away(*_told(error))
    except HeadwayError as error:
        return broken(*_told(error))
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return broken(what, "check that it is there and that this user may use it")
    except BaseException as error:  # noqa: BLE001 (a mistake in one check must not hide the other answers)
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return broken(f"this check failed: {text}", "report it with this text; the other checks are not affected")


# What others said stands behind the colon of these.
_QUOTING = ("PostgreSQL cannot be reached", "PostgreSQL does not let", "cannot be read or written", "cannot open")


def _told(error: HeadwayError) -> tuple[str, str]:
    """Our errors say what is wrong, and after their last colon what to do."""
    text = " ".join(str(error).split())
    detail, colon, remedy = text.rpartition(": ")
    if any(words in text for words in _QUOTING) or not colon:
        return text, "see that it is there, runs and lets this user in, or name another with --database"
    return detail, remedy

"""Runs the checks of an installation in order, each with a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from headway.errors import HeadwayError, Unreachable
from headway.model.checks import Answer, CheckResult, away, broken, skipped

Check: TypeAlias = Callable[[], Answer]
# Time limit of a check; a check that hangs on a disk or a server is abandoned.
SECONDS = 6.0
# The remedy for an error that has none of its own.
NO_HINT = "check that it exists, runs and admits this user, or name another with --database"


class Examination:
    """Runs one check after the other and keeps the answers."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.results: list[CheckResult] = []
        self.away: str | None = None
        self.hung = False

    def note(self, name: str, answer: Answer) -> Answer:
        if answer.unreachable:
            self.away = "the database cannot be asked"
        self.results.append(CheckResult(name, answer))
        return answer

    def ask(self, name: str, check: Check, seconds: float | None = None) -> Answer:
        return self.note(name, self._answer(check, seconds or self.seconds) or self._no_answer(seconds))

    def ask_database(self, name: str, check: Check, seconds: float | None = None) -> Answer:
        """Runs a check that needs the database.

        Once the database has given no answer, the remaining checks of it are skipped.
        """
        if self.away is not None:
            return self.note(name, skipped(self.away))
        found = self._answer(check, seconds or self.seconds)
        if found is not None:
            return self.note(name, found)
        answer = self._no_answer(seconds)
        return self.note(name, away(answer.detail, "find out what blocks the database: its disk, its server or a lock"))

    def _no_answer(self, seconds: float | None) -> Answer:
        return broken(f"no answer within {seconds or self.seconds:g} s", "check whether a disk or a server hangs")

    def _answer(self, check: Check, seconds: float) -> Answer | None:
        """Runs a check in a thread; returns None after the time limit.

        A thread that hangs cannot be stopped; it ends with the process.
        """
        found: list[Answer] = []
        thread = threading.Thread(target=lambda: found.append(answered(check)), name="headway-look", daemon=True)
        thread.start()
        thread.join(seconds)
        self.hung = self.hung or thread.is_alive()
        return found[0] if found else None


def answered(check: Check) -> Answer:
    """Runs a check and turns an exception into its answer."""
    try:
        return check()
    except Unreachable as error:
        return away(_line(error), error.hint or NO_HINT)
    except HeadwayError as error:
        return broken(_line(error), error.hint or NO_HINT)
    except OSError as error:
        cause = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return broken(cause, "check that it exists and that this user may use it")
    except BaseException as error:  # noqa: BLE001 (a mistake in one check must not hide the other answers)
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return broken(f"this check failed: {text}", "report it with this text; the other checks are not affected")


def _line(error: HeadwayError) -> str:
    return " ".join(error.problem.split())

"""`doctor`: checks an installation from its settings to its jobs, and prints a remedy for each problem.

It changes nothing.
"""

from __future__ import annotations

import platform
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headway.cli.command import Invocation, command
from headway.cli.commands.up import AppOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from headway.config import Settings
    from headway.doctor.runner import Examination
    from headway.engine.monitoring.check import Check, Expected
    from headway.model.checks import Answer, CheckResult
    from headway.store.db import Database, Tx

REACH_SECONDS = 12.0
UNREADABLE = "the settings cannot be read"
PLACES = ("artifacts", "secrets", "connections")
SERVER = ("address", "server")
_MARKS = {"ok": ("ok", "green"), "look": ("look", "yellow"), "broken": ("broken", "bold red")}


def register(root: typer.Typer) -> None:
    @command(root, "doctor")
    def doctor(call: Invocation, app: AppOption = None) -> int:
        """Check the installation. Exits 4 if something is broken, 5 if the database is."""
        from headway.model.checks import is_away, is_sound

        found = examine(call, app)
        checks = [_json(result) for result in found]
        call.out.answer({"checks": checks, "ok": is_sound(found)}, lambda: _page(found))
        if is_away(found):
            return 5
        return 0 if is_sound(found) else 4


def examine(call: Invocation, app: str | None) -> list[CheckResult]:
    """Runs every check that is possible, also after one has failed; returns the answers."""
    from headway.doctor import app_import
    from headway.doctor.runner import SECONDS, Examination
    from headway.doctor.settings import given
    from headway.model.checks import skipped
    from headway.tasks import BUILT_IN

    exam = Examination()
    settings, answer = given(call)
    exam.note("settings", answer)
    exam.ask("versions", _versions)
    own = {task.name for task in BUILT_IN}
    if settings is not None or app is not None:
        where = app if settings is None else app or settings.app
        exam.ask("app", partial(app_import.app, where, own), app_import.SECONDS + SECONDS)
    if settings is not None:
        _installation(exam, settings, own)
        return exam.results
    # The default settings would name another installation than the intended one.
    records = [check.name for check in _selected(None)]
    for name in (*(() if app else ("app",)), *PLACES, "database", *records, *SERVER):
        exam.note(name, skipped(UNREADABLE))
    return exam.results


def _installation(exam: Examination, settings: Settings, own: set[str]) -> None:
    from headway.cli.database.open import is_file
    from headway.doctor import server

    _places(exam, settings)
    database = _sqlite(exam, settings) if is_file(settings) else _postgres(exam, settings)
    try:
        _work(exam, settings, database, own)
        if database is not None:
            exam.ask_database("address", partial(server.address, settings, database))
    finally:
        if database is not None and not exam.hung:
            database.close()
    exam.ask("server", partial(server.server, settings))


# --- this program -------------------------------------------------------------------------------------------------


def _versions() -> Answer:
    from headway import __version__
    from headway.model.checks import ok

    return ok(f"Headway {__version__} on Python {platform.python_version()}, {platform.system()}")


# --- places -------------------------------------------------------------------------------------------------------


def _places(exam: Examination, settings: Settings) -> None:
    from headway.cli.database.open import is_file
    from headway.doctor import filesystem as places
    from headway.engine.execution.secrets import Vault

    vault = Vault(settings.secrets, settings.connections, settings.database)
    beside = Path(settings.database).parent if is_file(settings) else None
    exam.ask("artifacts", partial(places.artifacts, settings.artifacts, beside))
    exam.ask("secrets", partial(places.secrets, settings.secrets))
    exam.ask("connections", partial(places.connections, vault))


# --- the database -------------------------------------------------------------------------------------------------


def _sqlite(exam: Examination, settings: Settings) -> Database | None:
    from headway.doctor import database as checks
    from headway.doctor import filesystem as places
    from headway.store.sqlite.read_only import SqliteToLookAt

    path = Path(settings.database).absolute()
    library = exam.ask("sqlite", places.sqlite_library)
    exam.ask("file_system", partial(places.file_system, path))
    exam.ask("disk_space", partial(places.space, path.parent))
    exam.ask("file_watches", places.watches)
    exam.ask_database("database_file", partial(places.database_file, path))
    if exam.away is not None or library.mark == "broken":
        return None
    opened: list[SqliteToLookAt] = []

    def look() -> Answer:
        opened.append(SqliteToLookAt(str(path)))
        return checks.opened_file(opened[0])

    exam.ask_database("database", look)
    if not opened:
        return None
    exam.ask_database("integrity", partial(checks.integrity, opened[0]))
    exam.ask_database("journal", partial(checks.journal, opened[0]))
    return opened[0]


def _postgres(exam: Examination, settings: Settings) -> Database | None:
    from headway.doctor import database as checks
    from headway.doctor.filesystem import has_driver
    from headway.engine.monitoring.checks import durability
    from headway.model.checks import away, ok

    if not has_driver():
        exam.note("driver", away("PostgreSQL needs its driver", "install headway[postgres]"))
        return None
    exam.note("driver", ok("psycopg is installed"))
    from headway.store.postgres.read_only import PostgresToLookAt

    database = PostgresToLookAt(settings.database, listen=settings.listen)
    exam.ask_database("database", partial(checks.reached, database), REACH_SECONDS)
    exam.ask_database("notifications", partial(checks.notifications, database), REACH_SECONDS)
    exam.ask_database("clock", partial(checks.clock, database))
    for name, check in {
        "durability": durability,
        "rights": checks.rights,
        "server_connections": checks.connections,
        "vacuum": checks.vacuum,
        "locks": checks.locks,
    }.items():
        exam.ask_database(name, partial(checks.reading, database, check))
    return database


# --- what is recorded ---------------------------------------------------------------------------------------------


def _selected(settings: Settings | None) -> list[Check[Any]]:
    """Returns the checks that read the database. They need the schema of this Headway version."""
    from headway.cli.database.open import is_file
    from headway.config import Settings
    from headway.engine.monitoring.checks import CHECKS

    dialect = "sqlite" if is_file(settings or Settings()) else "postgres"
    return [check for check in CHECKS if check.dialect in (None, dialect)]


def _expected(settings: Settings, own: set[str]) -> Expected:
    from headway.engine.monitoring.check import Expected

    return Expected(
        own,
        settings.secrets,
        settings.connections.keys(),
        settings.concurrency.value(settings.aging),
        settings.resources,
        settings.recovery_interval,
        strict=True,
    )


def _answer(check: Check[Any], expected: Expected, tx: Tx) -> Answer:
    from headway.engine.monitoring.check import Scope

    return check.answer(Scope(tx, expected=expected))


def _work(exam: Examination, settings: Settings, database: Database | None, own: set[str]) -> None:
    from headway.doctor.database import reading
    from headway.model.checks import skipped

    selected = _selected(settings)
    if database is None:
        for name in (*(check.name for check in selected), "address"):
            exam.note(name, skipped(exam.away or "the database cannot be asked"))
        return
    expected = _expected(settings, own)
    for check in selected:
        answer = exam.ask_database(check.name, partial(reading, database, partial(_answer, check, expected)))
        if check.name == "schema" and answer.mark == "broken":
            exam.away = exam.away or "the database has another schema"


# --- output -------------------------------------------------------------------------------------------------------


def _json(result: CheckResult) -> dict[str, object]:
    from headway.config import masked

    answer = result.answer
    return {"name": result.name, "state": answer.mark, "detail": masked(answer.detail), "remedy": answer.remedy}


def _page(found: Sequence[CheckResult]) -> list[RenderableType]:
    from headway.cli.output import paragraph, styled, table
    from headway.config import masked

    made = table("", "CHECK", "FOUND", flexible=("FOUND",))
    for result in found:
        answer = result.answer
        if answer.mark in _MARKS:
            word, style = _MARKS[answer.mark]
            remedy = f"\n→ {answer.remedy}" if answer.remedy else ""
            made.add_row(styled(word, style), styled(result.name), paragraph(masked(answer.detail) + remedy))
    return [made, *_not_made(found), "", _sum(found)]


def _not_made(found: Sequence[CheckResult]) -> list[RenderableType]:
    reasons: dict[str, list[str]] = {}
    for result in found:
        if result.answer.mark == "skipped":
            reasons.setdefault(result.answer.detail, []).append(result.name)
    return [f"not checked: {', '.join(names)} ({why})" for why, names in reasons.items()]


def _sum(found: Sequence[CheckResult]) -> str:
    counts = {mark: sum(result.answer.mark == mark for result in found) for mark in ("broken", "look", "ok")}
    if not counts["broken"] and not counts["look"]:
        return f"all {counts['ok']} checks passed"
    bad = [f"{counts['broken']} broken"] if counts["broken"] else []
    doubtful = [f"{counts['look']} to look at"] if counts["look"] else []
    return ", ".join([*bad, *doubtful, f"{counts['ok']} ok"])

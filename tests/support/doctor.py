"""What `headway doctor` said, check by check."""

from __future__ import annotations

import os
from typing import Any

from headway.engine.execution import process_tree
from tests.support.cli import Answer as Said
from tests.support.cli import Here
from tests.support.life import Life

# What the machine of the tests may have that a production one should not: files in memory, a server without fsync.
OF_THE_MACHINE = {"file_system", "durability", "disk_space", "artifacts"}


def checks(said: Said) -> dict[str, dict[str, Any]]:
    found = said.data
    assert found.keys() == {"checks", "ok"}
    assert all(one.keys() == {"name", "state", "detail", "remedy"} for one in found["checks"])
    assert found["ok"] is not any(one["state"] == "broken" for one in found["checks"])
    for one in found["checks"]:  # whatever is not fine says what to do
        assert "\n" not in one["detail"], one
        assert (one["remedy"] is None) == (one["state"] in ("ok", "skipped")), one
    return {one["name"]: one for one in found["checks"]}


def looked(cli: Here, *args: object, database: str | None = None) -> dict[str, dict[str, Any]]:
    return checks(cli("doctor", "--json", *args, database=database))


def states(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: one["state"] for name, one in found.items() if name not in OF_THE_MACHINE}


def odd(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """What is not fine."""
    return {name: state for name, state in states(found).items() if state not in ("ok", "skipped")}


def is_file(cli: Here) -> bool:
    assert cli.database is not None
    return not cli.database.startswith("postgresql")


def kill(life: Life, worker_id: int) -> None:
    """As if the process of a worker of this machine had gone without a word."""
    place = f"host = '{process_tree.host()}', boot = '{process_tree.boot_id()}'"
    life.sql_write(f"update hw_worker set {place}, pid = {os.getpid()}, process_start = 1 where id = {worker_id}")

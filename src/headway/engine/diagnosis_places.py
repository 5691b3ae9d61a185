"""Checks of files and folders: the database's, those of artifacts, secrets and connections. Only looked at, never
written."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import pwd
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from headway.engine.secrets import SECRET, Vault
from headway.errors import BadInput
from headway.model.diagnosis import (
    Access,
    Answer,
    away,
    broken,
    judge_access,
    judge_file_system,
    judge_space,
    look,
    ok,
    skipped,
)
from headway.store.sqlite import lib_version, refuse_affected

MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")  # a blank is written \040


def user_name(number: int | None = None) -> str:
    number = os.geteuid() if number is None else number
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def access(path: Path) -> Access:
    """For a folder, being read is being entered."""
    needed = os.X_OK | os.R_OK if path.is_dir() else os.R_OK
    effective = os.access in os.supports_effective_ids
    return Access(
        str(path),
        user_name(path.stat().st_uid),
        os.access(path, needed, effective_ids=effective),
        os.access(path, os.W_OK, effective_ids=effective),
    )


def existing(path: Path) -> Path:
    """The path itself, or what of it is there."""
    whole = path.absolute()
    return next(one for one in (whole, *whole.parents) if one.exists())


# --- the database file --------------------------------------------------------------------------------------------


def database_file(path: Path) -> Answer:
    if not path.parent.is_dir():
        return away(f"there is no folder {path.parent}", "create it, or change `database` in the settings")
    if path.is_dir():
        return away(f"{path} is a folder", "name a database file with --database or in the settings")
    if not path.exists():
        return away(f"there is no database at {path}", "start with `headway up`, or name one with --database")
    beside = [Path(f"{path}{ending}") for ending in ("-wal", "-shm")]
    seen = [access(one) for one in (path, path.parent, *(one for one in beside if one.exists()))]
    answer = judge_access(user_name(), seen)
    if answer.mark == "broken" and not seen[0].readable:
        return away(answer.detail, answer.remedy or "")
    return answer


def sqlite_library() -> Answer:
    version = lib_version()
    refuse_affected(version)
    return ok(f"SQLite {'.'.join(map(str, version))}")


def file_system(path: Path) -> Answer:
    if not MOUNTS.exists():
        return skipped("this system does not say on what file system a file is")
    found = existing(path)
    kind = mounted(MOUNTS.read_text(), str(found.resolve()))
    return judge_file_system(kind, str(path)) if kind else skipped("its file system is not listed")


def mounted(table: str, path: str) -> str | None:
    """The kind of the file system that a path is on, by the kernel's table of mounts. The last of several on one place
    is the one that is seen."""
    found, longest = None, -1
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        place = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), before.split()[4])
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= longest:
            found, longest = after.split()[0], len(place)
    return found


def space(path: Path) -> Answer:
    folder = existing(path)
    return judge_space(shutil.disk_usage(folder).free, str(folder))


def watches() -> Answer:
    """Whoever waits for a job watches the log file; the kernel has only so many watches for a user."""
    if sys.platform != "linux":
        return skipped("this system is polled instead")
    from inotify_simple import INotify  # type: ignore[import-untyped]

    try:
        INotify().close()
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOSPC):
            raise
        remedy = "raise fs.inotify.max_user_instances with sysctl, or end what uses them up"
        return broken("this user has no file watch (inotify) left: no worker can start", remedy)
    return ok("file watches are to be had")


# --- what settings name -------------------------------------------------------------------------------------------


def artifacts(folder: Path, database: Path | None) -> Answer:
    """It comes into being with the first file. The room on the disk of a `database` file is another check's."""
    there = existing(folder)
    if not there.is_dir():
        return broken(f"{there} is not a folder", "change `artifacts` in the settings")
    seen = access(there)
    if not (seen.readable and seen.writable):
        return broken(f"{user_name()} may not write into {there} (of {seen.owner})", "let it, or change `artifacts`")
    if database is not None and existing(database).stat().st_dev == there.stat().st_dev:
        room = ok(f"{there} is on the disk of the database")
    else:
        room = judge_space(shutil.disk_usage(there).free, str(there))
    if room.mark != "ok":
        return room
    return ok(room.detail if there == folder.absolute() else f"{folder} comes with the first file; {room.detail}")


def secrets(places: Mapping[str, str]) -> Answer:
    """Each is read as a worker would read it, and not kept. The environment of this shell need not be the worker's."""
    if not places:
        return ok("the settings name none")
    missing = {name: why for name, place in places.items() if (why := _missing(name, place)) is not None}
    if not missing:
        return ok(f"{len(places)} can be read")
    detail = "; ".join(f"{name}: {why}" for name, why in missing.items())
    if all(places[name].startswith("env:") for name in missing):
        return look(f"{detail}, as far as this shell goes", "see that the worker's environment has it")
    return broken(detail, "put the file there, readable for the worker, or correct `secrets`")


def _missing(name: str, place: str) -> str | None:
    try:
        Vault({name: place}).reveal(json.dumps({"it": {SECRET: name}}))
    except BadInput as error:
        return str(error).partition(", but ")[2]
    return None


def connections(vault: Vault) -> Answer:
    """Nobody is called: these databases are others'."""
    if not vault.connections:
        return ok("the settings name none")
    if wrong := list(_wrong(vault)):
        return broken("; ".join(wrong), "correct `connections` in the settings")
    return ok(f"{len(vault.connections)} named: {', '.join(sorted(vault.connections))}")


def _wrong(vault: Vault) -> Iterator[str]:
    for name in sorted(vault.connections):
        try:
            address = vault.connection(name)
        except BadInput as error:
            yield str(error).removeprefix("params.connection ")
            continue
        if "://" not in address and not os.access(address, os.R_OK):
            yield f"{name}: the file {address} cannot be read"
        elif "://" in address and not has_driver():
            yield f"{name}: PostgreSQL needs its driver: install headway[postgres]"


def has_driver() -> bool:
    return all(importlib.util.find_spec(name) for name in ("psycopg", "psycopg_pool"))

"""Checks of files and folders: database, artifacts, secrets and connections.

The checks only read; they write nothing.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import pwd
import shutil
import sys
from collections.abc import Iterator, Mapping
from glob import escape
from pathlib import Path

from headway.engine.execution.secrets import Unusable, Vault, read
from headway.model.access.secrets import OwnedSecret
from headway.model.checks import (
    Access,
    Answer,
    Privacy,
    away,
    broken,
    judge_access,
    judge_file_system,
    judge_folder,
    judge_privacy,
    judge_space,
    look,
    ok,
    skipped,
)
from headway.model.values.file_systems import mounted
from headway.store.sqlite.version import lib_version, refuse_affected

MOUNTS = Path("/proc/self/mountinfo")


def user_name(number: int | None = None) -> str:
    number = os.geteuid() if number is None else number
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def access(path: Path) -> Access:
    """Returns the owner of a path and this user's rights on it.

    A folder counts as readable only if this user may enter it too.
    """
    needed = os.X_OK | os.R_OK if path.is_dir() else os.R_OK
    effective = os.access in os.supports_effective_ids
    return Access(
        str(path),
        user_name(path.stat().st_uid),
        os.access(path, needed, effective_ids=effective),
        os.access(path, os.W_OK, effective_ids=effective),
    )


def privacy(path: Path) -> Privacy:
    return Privacy(str(path), path.stat().st_mode)


def existing(path: Path) -> Path:
    """Returns the path itself, or its nearest parent that exists."""
    whole = path.absolute()
    return next(part for part in (whole, *whole.parents) if part.exists())


# --- the database file --------------------------------------------------------------------------------------------


def database_file(path: Path) -> Answer:
    if not path.parent.is_dir():
        return away(f"there is no folder {path.parent}", "create it, or change `database` in the settings")
    if path.is_dir():
        return away(f"{path} is a folder", "name a database file with --database or in the settings")
    if not path.exists():
        return away(f"there is no database at {path}", "start with `headway up`, or name one with --database")
    beside = [Path(f"{path}{ending}") for ending in ("-wal", "-shm")]
    seen = [access(file) for file in (path, path.parent, *(file for file in beside if file.exists()))]
    answer = judge_access(user_name(), seen)
    if answer.mark == "broken" and not seen[0].readable:
        return away(answer.detail, answer.remedy or "")
    if answer.mark != "ok":
        return answer
    kept = sorted(path.parent.glob(f"{escape(path.name)}.before-*"))  # left by `headway db restore`
    private = judge_privacy([privacy(file) for file in (path, *beside, *kept) if file.exists()])
    return private or judge_folder(str(path.parent), path.parent.stat().st_mode) or answer


def sqlite_library() -> Answer:
    version = lib_version()
    refuse_affected(version)
    return ok(f"SQLite {'.'.join(map(str, version))}")


def file_system(path: Path) -> Answer:
    if not MOUNTS.exists():
        return skipped("this system does not list its mounted file systems")
    found = existing(path)
    kind = mounted(MOUNTS.read_text(), str(found.resolve()))
    return judge_file_system(kind, str(path)) if kind else skipped("its file system is not listed")


def space(path: Path) -> Answer:
    folder = existing(path)
    return judge_space(shutil.disk_usage(folder).free, str(folder))


def watches() -> Answer:
    """Checks that the kernel has a file watch left for this user.

    Processes that wait for a job watch the write-ahead log file.
    """
    if sys.platform != "linux":
        return skipped("this system has no inotify; Headway polls instead")
    from inotify_simple import INotify  # type: ignore[import-untyped]

    try:
        INotify().close()
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOSPC):
            raise
        remedy = "raise fs.inotify.max_user_instances with sysctl, or stop the programs that use them"
        return broken("this user has no file watch (inotify) left: no worker can start", remedy)
    return ok("file watches (inotify) are available")


# --- paths in the settings ----------------------------------------------------------------------------------------


def artifacts(folder: Path, database: Path | None) -> Answer:
    """Checks the artifacts folder, which the first artifact creates.

    Free space on the disk of a `database` file is checked elsewhere.
    """
    there = existing(folder)
    if not there.is_dir():
        return broken(f"{there} is not a folder", "change `artifacts` in the settings")
    seen = access(there)
    if not (seen.readable and seen.writable):
        remedy = "grant write access, or change `artifacts`"
        return broken(f"{user_name()} may not write into {there} (owner: {seen.owner})", remedy)
    if database is not None and existing(database).stat().st_dev == there.stat().st_dev:
        room = ok(f"{there} is on the disk of the database")
    else:
        room = judge_space(shutil.disk_usage(there).free, str(there))
    if room.mark != "ok":
        return room
    if there == folder.absolute() and (wide := judge_privacy([privacy(there)])) is not None:
        return wide
    return ok(room.detail if there == folder.absolute() else f"the first file creates {folder}; {room.detail}")


def secrets(places: Mapping[str, OwnedSecret]) -> Answer:
    """Checks that each secret can be read, as a worker would read it.

    The environment of a worker may differ from that of this shell.
    """
    if not places:
        return ok("the settings name none")
    missing = {name: why for name, place in places.items() if (why := _missing(name, place)) is not None}
    if not missing:
        files = [Path(place.source.partition(":")[2]) for place in places.values() if place.variable is None]
        return judge_privacy([privacy(file) for file in files]) or ok(f"{len(places)} can be read")
    detail = "; ".join(f"{name}: {why}" for name, why in missing.items())
    if all(places[name].variable is not None for name in missing):
        return look(f"{detail}, in the environment of this shell", "check that the worker's environment has it")
    return broken(detail, "create the file, readable for the worker, or correct `secrets`")


def _missing(name: str, secret: OwnedSecret) -> str | None:
    try:
        read(secret, name, "")
    except Unusable as error:
        return error.why
    return None


def connections(vault: Vault) -> Answer:
    """Checks the named connections; does not connect to them."""
    if not vault.connections:
        return ok("the settings name none")
    if wrong := list(_wrong(vault)):
        return broken("; ".join(wrong), "correct `connections` in the settings")
    return ok(f"{len(vault.connections)} named: {', '.join(sorted(vault.connections))}")


def _wrong(vault: Vault) -> Iterator[str]:
    for name in sorted(vault.connections):
        try:
            address = vault.connection(name)
        except Unusable as error:
            yield error.why
            continue
        if "://" not in address and not os.access(address, os.R_OK):
            yield f"{name}: the file {address} cannot be read"
        elif "://" in address and not has_driver():
            yield f"{name}: PostgreSQL needs its driver: install headway[postgres]"


def has_driver() -> bool:
    return all(importlib.util.find_spec(name) for name in ("psycopg", "psycopg_pool"))

"""Keeps backups in a folder: one file each, with the attached files by hash, as many as a rule keeps."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.cli.database.backup import Progress, backup
from headway.engine.execution.artifacts import PIECE, PRIVATE, place_of
from headway.errors import Refused
from headway.model.backups import Keep, expired, name_at, taken_at
from headway.store.db import Database

FILES = "artifacts"
# Beside each backup: the hashes of the attached files at its time, a line each.
LIST = ".files"


@dataclass(frozen=True, slots=True)
class Rotated:
    """A new backup: its file, the attached files copied with it and damaged at their source, the backups removed."""

    file: Path
    copied: int
    damaged: tuple[str, ...]
    removed: tuple[str, ...]


def rotate(
    database: Database, folder: Path, artifacts: Path, keep: Keep | None, progress: Progress | None = None
) -> Rotated:
    """Adds a backup to the folder. Only after it was checked, backups that the rule does not keep are removed."""
    folder.mkdir(PRIVATE, parents=True, exist_ok=True)
    with database.read() as tx:
        file = folder / name_at(int(tx.now()))
    if file.exists():
        raise Refused(f"{file} exists already: it was made in this second; wait and try again")
    backup(database, file, progress)
    copied, damaged = copy_new(artifacts, folder / FILES)
    _write_list(file, sorted(path.name for path in files_in(artifacts)))
    return Rotated(file, copied, tuple(damaged), tuple(_remove_expired(folder, keep) if keep else ()))


def files_in(folder: Path) -> Iterator[Path]:
    """Yields the attached files in a folder; their names are their hashes."""
    for path in sorted(folder.glob("??/*")):
        if place_of(folder, f"{path.parent.name}/{path.name}") == path and path.is_file():
            yield path


def restore_files(file: Path, artifacts: Path) -> list[str]:
    """Copies the attached files that a backup lists back to the folder of artifacts; returns the damaged ones.

    Does nothing for a backup that stands alone, without a list.
    """
    if not _list_of(file).exists():
        return []
    listed = set(_list_of(file).read_text("ascii").split())
    return copy_new(file.parent / FILES, artifacts, only=listed)[1]


def copy_new(source: Path, to: Path, *, only: Collection[str] | None = None) -> tuple[int, list[str]]:
    """Copies the attached files that the other folder lacks; returns their number, and the damaged ones.

    A damaged file is left out: its content has another hash than its name. A file that is pruned meanwhile is too.
    """
    copied, damaged = 0, []
    for path in files_in(source):
        place = to / path.parent.name / path.name
        if place.exists() or (only is not None and path.name not in only):
            continue
        place.parent.mkdir(PRIVATE, parents=True, exist_ok=True)
        try:
            if _copy(path, place):
                copied += 1
            else:
                damaged.append(path.name)
        except FileNotFoundError:
            continue
    return copied, damaged


def _copy(path: Path, place: Path) -> bool:
    """Copies a file and syncs it. Returns False, without a copy, if its content has another hash than its name."""
    digest = hashlib.sha256()
    with (
        open(path, "rb") as source,
        tempfile.NamedTemporaryFile(dir=place.parent, prefix=".part-", delete=False) as copy,
    ):
        try:
            while piece := source.read(PIECE):
                digest.update(piece)
                copy.write(piece)
            copy.flush()
            os.fsync(copy.fileno())
            if digest.hexdigest() == path.name:
                os.replace(copy.name, place)
        finally:
            Path(copy.name).unlink(missing_ok=True)
    return digest.hexdigest() == path.name


def _list_of(file: Path) -> Path:
    return file.with_name(file.name + LIST)


def _write_list(file: Path, hashes: list[str]) -> None:
    descriptor = os.open(_list_of(file), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="ascii") as listed:
        listed.writelines(f"{digest}\n" for digest in hashes)
        listed.flush()
        os.fsync(listed.fileno())


def _remove_expired(folder: Path, keep: Keep) -> list[str]:
    """Removes the backups that the rule does not keep, and attached files that no kept backup lists."""
    names = expired([path.name for path in folder.iterdir()], keep)
    for name in names:
        (folder / name).unlink(missing_ok=True)
        _list_of(folder / name).unlink(missing_ok=True)
    kept = [path for path in folder.iterdir() if taken_at(path.name) is not None]
    if names and all(_list_of(path).exists() for path in kept):
        listed = {digest for path in kept for digest in _list_of(path).read_text("ascii").split()}
        for path in list(files_in(folder / FILES)):
            if path.name not in listed:
                path.unlink(missing_ok=True)
    return names

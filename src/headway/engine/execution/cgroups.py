"""Puts each task process into a control group of its own.

Its descendants cannot leave the group. A fork, a new session or an empty environment does not change the group. This
needs Linux and a group of the unified hierarchy that this process may divide: a group that systemd delegated, or the
root of a container's hierarchy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

_PREFIX = "headway-"
# Extended attributes by which systemd marks a delegated group; the second is set by a user's own service manager.
_DELEGATED = ("trusted.delegate", "user.delegate")


def enter(tag: str, pid: int) -> bool:
    """Moves a process into a group of its own, before it starts others.

    Returns False if this is not allowed.
    """
    folder = _folder(tag)
    if folder is None:
        return False
    try:
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.procs").write_text(str(pid))
    except OSError:
        leave(tag)
        return False
    return True


def pids(tag: str) -> set[int]:
    """Returns the processes in the group of a tag, and in groups below it."""
    folder = _folder(tag)
    return set() if folder is None else set(_members(folder))


def leave(tag: str) -> None:
    """Removes the group of a tag. A group with a process in it stays."""
    if (folder := _folder(tag)) is not None:
        _remove(folder)


def tags() -> set[str]:
    """Returns the tags of all groups with a process; removes the empty groups."""
    home = _home()
    folders = [] if home is None else list(home.glob(f"{_PREFIX}*"))
    populated = {folder for folder in folders if any(True for _ in _members(folder))}
    for folder in set(folders) - populated:
        _remove(folder)
    return {folder.name.removeprefix(_PREFIX) for folder in populated}


def _folder(tag: str) -> Path | None:
    """Returns the folder of a tag's group; in a task process that is its own group."""
    home, name = _home(), _PREFIX + tag
    return home if home is None or home.name == name else home / name


def _members(folder: Path) -> Iterator[int]:
    for path, _, _ in os.walk(folder):
        with suppress(OSError):  # the group was removed meanwhile
            yield from map(int, Path(path, "cgroup.procs").read_text().split())


def _remove(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            os.rmdir(path)


@cache
def _home() -> Path | None:
    """Returns the group of this process; None if the process may not divide it."""
    if sys.platform != "linux":
        return None
    group, mount = _own_group(), _mount()
    if group is None or mount is None:
        return None
    folder = mount / group.lstrip("/")
    inside = Path(group).name.startswith(_PREFIX)
    allowed = group == "/" or inside or any(_has_mark(folder, mark) for mark in _DELEGATED)
    return folder if allowed and os.access(folder / "cgroup.procs", os.W_OK) else None


def _own_group() -> str | None:
    with suppress(OSError), open("/proc/self/cgroup") as lines:
        for line in lines:
            number, _, path = line.rstrip("\n").split(":", 2)
            if number == "0" and not path.startswith("/.."):
                return path
    return None


def _mount() -> Path | None:
    """Returns where the whole unified hierarchy is mounted; None if it is not."""
    with suppress(OSError), open("/proc/self/mountinfo") as lines:
        for line in lines:
            fields, _, rest = line.partition(" - ")
            root, place = fields.split()[3:5]
            if rest.startswith("cgroup2 ") and root == "/":
                return Path(place)
    return None


def _has_mark(folder: Path, mark: str) -> bool:
    with suppress(OSError):
        return os.getxattr(folder, mark) == b"1"
    return False

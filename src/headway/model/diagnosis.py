"""What an examination of an installation finds, and how what was measured is judged: fine, worth a look, broken. Pure.

Broken is what keeps work from being done, or puts at risk what is recorded; everything else deserves a look at most.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Mark: TypeAlias = Literal["ok", "look", "broken", "skipped"]

MIB, GIB = 1 << 20, 1 << 30
LITTLE_SPACE, NO_SPACE = GIB, 64 * MIB
# A log file is cut back to 64 MiB by SQLite as soon as nobody reads an old state of it.
LONG_LOG = 256 * MIB
SKEW = 5.0
# A process has a pool of 8 connections, one to listen, one for its heartbeat.
CONNECTIONS_OF_ONE = 10
OLD_SNAPSHOT = 600.0
OLDEST_SERVER = 14

# Two hosts, or a host and a server, see other locks and other memory there than WAL needs.
NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "ncpfs"}
)
DOUBTFUL = frozenset({"9p", "drvfs", "virtiofs", "vboxsf", "fuseblk"})
VOLATILE = frozenset({"tmpfs", "ramfs", "devtmpfs"})


@dataclass(frozen=True, slots=True)
class Answer:
    """What one check found: how it stands, in words, and what to do about it. `unreachable`: there is no database to
    ask, and nothing more can be found out from it."""

    mark: Mark
    detail: str
    remedy: str | None = None
    unreachable: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of the check with this name."""

    name: str
    answer: Answer


def ok(detail: str) -> Answer:
    return Answer("ok", detail)


def look(detail: str, remedy: str) -> Answer:
    return Answer("look", detail, remedy)


def broken(detail: str, remedy: str | None = None) -> Answer:
    return Answer("broken", detail, remedy)


def skipped(why: str) -> Answer:
    return Answer("skipped", why)


def away(detail: str, remedy: str) -> Answer:
    return Answer("broken", detail, remedy, unreachable=True)


def is_sound(found: Sequence[Finding]) -> bool:
    return not any(one.answer.mark == "broken" for one in found)


def is_away(found: Sequence[Finding]) -> bool:
    return any(one.answer.unreachable for one in found)


# --- files --------------------------------------------------------------------------------------------------------


def size_text(count: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


def judge_space(free: int, place: str) -> Answer:
    detail = f"{size_text(free)} free in {place}"
    if free < NO_SPACE:
        return broken(detail, "free some space: soon nothing can be recorded any more")
    if free < LITTLE_SPACE:
        return look(detail, "free some space; a shorter `retention` keeps less")
    return ok(detail)


def judge_log(size: int) -> Answer:
    if size > LONG_LOG:
        remedy = "end whoever has been reading an old state of the file for long (a backup, an open sqlite3 shell)"
        return look(f"the log beside the database has grown to {size_text(size)}", remedy)
    return ok(f"write-ahead log, {size_text(size)}")


def judge_file_system(kind: str, place: str) -> Answer:
    detail = f"{place} is on {kind}"
    name = kind.removeprefix("fuse.")
    if name in NETWORK or name.startswith(("sshfs", "s3fs", "rclone", "gvfs")):
        text = "move the file to a local disk, or use PostgreSQL: SQLite's log is not safe on a network file system"
        return broken(f"{detail}, a network file system", text)
    if kind in DOUBTFUL or kind.startswith("fuse"):
        text = "use a local disk unless you know that locks and shared memory work there as on one"
        return look(f"{detail}, which is not a local disk", text)
    if kind in VOLATILE:
        return look(
            f"{detail}: it is gone after a restart of the machine", "move it to a disk, unless that is intended"
        )
    if kind in ("overlay", "aufs"):
        text = "put it on a volume, unless it may go with the container"
        return look(f"{detail}, a container's own layer: it goes with the container", text)
    return ok(detail)


@dataclass(frozen=True, slots=True)
class Access:
    """What this user may do with a file or a folder, and whose it is."""

    path: str
    owner: str
    readable: bool
    writable: bool


def judge_access(user: str, seen: Sequence[Access]) -> Answer:
    """`seen`: the file itself first, then its folder and what lies beside it."""
    closed = [one for one in seen if not (one.readable and one.writable)]
    if not closed:
        return ok(f"{seen[0].path} and its folder are writable for {user}")
    named = ", ".join(f"{one.path} (of {one.owner})" for one in closed)
    what = "written" if all(one.readable for one in closed) else "read or written"
    remedy = f"let {user} own them, or run Headway as its owner"
    if all(one.owner == user for one in closed):
        rights = "u+w" if what == "written" else "u+rw"
        remedy = f"`chmod {rights} {' '.join(shlex.quote(one.path) for one in closed)}`"
    return broken(f"{user} has no right to {named}, which must be {what}", remedy)


# --- PostgreSQL ---------------------------------------------------------------------------------------------------


def judge_version(number: int, took: float) -> Answer:
    detail = f"PostgreSQL {number // 10_000}.{number % 10_000}, answers in {took * 1000:.1f} ms"
    if number // 10_000 < OLDEST_SERVER:
        return look(detail, f"PostgreSQL before {OLDEST_SERVER} gets no corrections any more: bring it up to date")
    return ok(detail)


def judge_durability(*, fsync: str, full_page_writes: str, synchronous_commit: str) -> Answer:
    found = {"fsync": fsync, "full_page_writes": full_page_writes, "synchronous_commit": synchronous_commit}
    off = [name for name, value in found.items() if value == "off"]
    if not off:
        return ok(", ".join(f"{name} {value}" for name, value in found.items()))
    if off == ["full_page_writes"]:
        text = "turn it on, unless the file system never leaves a page half written, as ZFS"
        return look("full_page_writes off: a crash can damage pages", text)
    return broken(
        f"{' and '.join(off)} off: what was acknowledged can be lost in a crash", "turn it on for this database"
    )


def judge_skew(seconds: float) -> Answer:
    if abs(seconds) < SKEW:
        return ok(f"the server's clock and ours differ by {abs(seconds):.1f} s")
    word = "ahead of" if seconds > 0 else "behind"
    remedy = "set both clocks by NTP: leases are kept by the server's, what you see is told by ours"
    return look(f"the server's clock is {abs(seconds):.0f} s {word} ours", remedy)


def judge_connections(used: int, most: int) -> Answer:
    left = most - used
    detail = f"{used} of {most} connections are in use"
    if left < CONNECTIONS_OF_ONE:
        remedy = f"raise max_connections, or use a pooler: one Headway process may need {CONNECTIONS_OF_ONE}"
        return look(f"{detail}: {max(0, left)} left", remedy)
    return ok(detail)


def judge_vacuum(*, on: bool, tables_off: Sequence[str], oldest: tuple[int, float, str] | None) -> Answer:
    """`oldest`: the transaction that has been open for longest, as pid, seconds and the program's name."""
    if not on:
        return look("autovacuum or track_counts is off: claims get slower with every job", "turn both on")
    if tables_off:
        return look(f"autovacuum is off for {', '.join(tables_off)}", "alter table … reset (autovacuum_enabled)")
    if oldest is not None and oldest[1] > OLD_SNAPSHOT:
        pid, age, name = oldest
        text = (
            f"a transaction of {name or 'somebody'} (pid {pid}) has been open for {age / 60:.0f} min: claims get slower"
        )
        return look(text, f"end it there, or with `select pg_terminate_backend({pid})`")
    return ok("autovacuum is on, and no transaction has been open for long")

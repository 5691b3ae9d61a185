"""The answer of a check with its findings, and the rules that judge a measurement: ok, look, broken. Pure.

Broken means that jobs cannot run or stored data is at risk. Every other problem is at most a look.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from headway.model.values.file_systems import DOUBTFUL, VOLATILE, is_network

Mark: TypeAlias = Literal["ok", "look", "broken", "skipped"]

MIB, GIB = 1 << 20, 1 << 30
LITTLE_SPACE, NO_SPACE = GIB, 64 * MIB
# SQLite truncates its log to 64 MiB as soon as no connection reads an old snapshot.
LONG_LOG = 256 * MIB
SKEW = 5.0
# A process opens a pool of 8 connections, one to listen, and one for its heartbeat.
CONNECTIONS_OF_ONE = 10
OLD_SNAPSHOT = 600.0
# A claim holds its lock for milliseconds, and a writing transaction ends within seconds.
LONG_CLAIM, LONG_WRITE = 3.0, 60.0
OLDEST_SERVER = 14
# A tick or a delivery this long after its time is overdue.
OVERDUE = 60.0


@dataclass(frozen=True, slots=True)
class Remedy:
    """The action that ends a finding.

    `text` is a clause, in which `{command}` stands for the command. `page` is the path of a page of the dashboard.
    """

    text: str
    command: str | None = None
    page: str | None = None

    @property
    def line(self) -> str:
        """Returns the clause with its command, as terminals and logs show it."""
        return self.text.replace("{command}", f"`{self.command}`")


@dataclass(frozen=True, slots=True)
class Subject:
    """The thing that a finding is about: its noun, its name, and a key that no other thing has."""

    noun: str
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that needs a person. `kind` is for programs.

    A finding without a subject concerns the whole installation: `/readyz` reports it. The Health page lists the others.
    """

    kind: str
    sentence: str
    remedy: Remedy
    tone: str = "bad"
    subject: Subject | None = None

    @property
    def line(self) -> str:
        """Returns the sentence and the remedy, as a terminal shows them."""
        return f"{self.sentence}: {self.remedy.line}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one check: a mark, a sentence, a remedy, and the findings behind them.

    `unreachable` means that the database cannot be opened, so the checks that need it are skipped.
    """

    mark: Mark
    detail: str
    remedy: str | None = None
    unreachable: bool = False
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check's name and its answer."""

    name: str
    answer: Answer


def ok(detail: str) -> Answer:
    return Answer("ok", detail)


def look(detail: str, remedy: str, findings: Sequence[Finding] = ()) -> Answer:
    return Answer("look", detail, remedy, findings=tuple(findings))


def broken(detail: str, remedy: str | None = None, findings: Sequence[Finding] = ()) -> Answer:
    return Answer("broken", detail, remedy, findings=tuple(findings))


def skipped(why: str) -> Answer:
    return Answer("skipped", why)


def away(detail: str, remedy: str, findings: Sequence[Finding] = ()) -> Answer:
    return Answer("broken", detail, remedy, unreachable=True, findings=tuple(findings))


def is_sound(found: Sequence[CheckResult]) -> bool:
    return not any(result.answer.mark == "broken" for result in found)


def is_away(found: Sequence[CheckResult]) -> bool:
    return any(result.answer.unreachable for result in found)


# --- files --------------------------------------------------------------------------------------------------------


def size_text(count: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


def judge_space(free: int, place: str) -> Answer:
    detail = f"{size_text(free)} free in {place}"
    if free < NO_SPACE:
        return broken(detail, "free some space: writes will fail soon")
    if free < LITTLE_SPACE:
        return look(detail, "free some space, or set a shorter `retention`")
    return ok(detail)


def judge_log(size: int) -> Answer:
    if size > LONG_LOG:
        remedy = "end the process that keeps reading an old snapshot of the file (a backup, an open sqlite3 shell)"
        return look(f"the write-ahead log has grown to {size_text(size)}", remedy)
    return ok(f"write-ahead log, {size_text(size)}")


def judge_file_system(kind: str, place: str) -> Answer:
    detail = f"{place} is on {kind}"
    if is_network(kind):
        text = "move the file to a local disk, or use PostgreSQL: SQLite is not safe on a network file system"
        return broken(f"{detail}, a network file system", text)
    if kind in DOUBTFUL or kind.startswith("fuse"):
        text = "use a local disk, unless file locks and shared memory are known to work there"
        return look(f"{detail}, which is not a local disk", text)
    if kind in VOLATILE:
        return look(f"{detail}: it is lost when the machine restarts", "move it to a disk, unless that is intended")
    if kind in ("overlay", "aufs"):
        text = "put it on a volume, unless it may be lost with the container"
        return look(f"{detail}, a container's own layer: it is deleted with the container", text)
    return ok(detail)


@dataclass(frozen=True, slots=True)
class Access:
    """The permissions of this user on a file or a folder, and its owner."""

    path: str
    owner: str
    readable: bool
    writable: bool


def judge_access(user: str, seen: Sequence[Access]) -> Answer:
    """Judges permissions. `seen` has the file first, then its folder and the files beside it."""
    closed = [access for access in seen if not (access.readable and access.writable)]
    if not closed:
        return ok(f"{seen[0].path} and its folder are writable for {user}")
    named = ", ".join(f"{access.path} (owned by {access.owner})" for access in closed)
    what = "write" if all(access.readable for access in closed) else "read and write"
    remedy = f"make {user} the owner, or run Headway as the owner"
    if all(access.owner == user for access in closed):
        rights = "u+w" if what == "write" else "u+rw"
        remedy = f"`chmod {rights} {' '.join(shlex.quote(access.path) for access in closed)}`"
    return broken(f"{user} may not {what} {named}", remedy)


@dataclass(frozen=True, slots=True)
class Privacy:
    """The mode of a file or a folder."""

    path: str
    mode: int


def judge_privacy(seen: Sequence[Privacy]) -> Answer | None:
    """Judges what the group and others may do with private files; None if they may do nothing."""
    wide = [privacy for privacy in seen if privacy.mode & 0o077]
    if not wide:
        return None
    named = ", ".join(f"{privacy.path} (mode {privacy.mode & 0o7777:04o})" for privacy in wide)
    remedy = f"`chmod go= {' '.join(shlex.quote(privacy.path) for privacy in wide)}`, unless that is intended"
    return look(f"other users may access {named}", remedy)


def judge_folder(folder: str, mode: int) -> Answer | None:
    """Judges the folder of a database; None if only its owner and group may replace files in it."""
    if mode & 0o002 and not mode & 0o1000:
        return look(f"every user may replace files in {folder}", f"`chmod o-w {shlex.quote(folder)}`")
    return None


# --- PostgreSQL ---------------------------------------------------------------------------------------------------


def judge_version(number: int, took: float) -> Answer:
    detail = f"PostgreSQL {number // 10_000}.{number % 10_000}, answers in {took * 1000:.1f} ms"
    if number // 10_000 < OLDEST_SERVER:
        return look(detail, f"PostgreSQL before {OLDEST_SERVER} no longer receives fixes: upgrade it")
    return ok(detail)


def judge_durability(*, fsync: str, full_page_writes: str, synchronous_commit: str) -> Answer:
    """Judges the server's durability settings.

    `synchronous_commit` is the default of a session. Headway's own sessions turn it on.
    """
    found = {"fsync": fsync, "full_page_writes": full_page_writes, "synchronous_commit": synchronous_commit}
    if fsync == "off":
        off = [name for name in ("fsync", "full_page_writes") if found[name] == "off"]
        text = "turn fsync on, or store nothing in this server that must survive a crash"
        return broken(f"{' and '.join(off)} off: acknowledged commits can be lost in a crash", text)
    if full_page_writes == "off":
        text = "turn it on, unless the file system never leaves a page half written (as ZFS)"
        return look("full_page_writes off: a crash can damage pages", text)
    if synchronous_commit == "off":
        text = "turn it on where you enqueue with `connection=`: your own commit can be lost in a crash"
        return look("synchronous_commit is off here; Headway turns it on for its own transactions", text)
    return ok(", ".join(f"{name} {value}" for name, value in found.items()))


def judge_locks(found: Sequence[tuple[str, int, float, bool]]) -> Answer:
    """Judges idle transactions: description, pid, idle seconds, and True if one holds the claim lock."""
    for words, pid, seconds, claims in found:
        if seconds > (LONG_CLAIM if claims else LONG_WRITE):
            waits = "every worker waits for it" if claims else "other transactions may wait for its rows"
            return look(f"{words}: {waits}", f"end it there, or with `select pg_terminate_backend({pid})`")
    return ok("no transaction blocks others")


def judge_skew(seconds: float) -> Answer:
    if abs(seconds) < SKEW:
        return ok(f"the server's clock and ours differ by {abs(seconds):.1f} s")
    word = "ahead of" if seconds > 0 else "behind"
    remedy = "set both clocks by NTP: leases use the server's clock, displayed times use ours"
    return look(f"the server's clock is {abs(seconds):.0f} s {word} ours", remedy)


def judge_connections(used: int, most: int) -> Answer:
    left = most - used
    detail = f"{used} of {most} connections are in use"
    if left < CONNECTIONS_OF_ONE:
        remedy = f"raise max_connections, or use a pooler: one Headway process may need {CONNECTIONS_OF_ONE}"
        return look(f"{detail}: {max(0, left)} left", remedy)
    return ok(detail)


def judge_vacuum(*, on: bool, tables_off: Sequence[str], oldest: tuple[int, float, str] | None) -> Answer:
    """Judges autovacuum. `oldest` is the longest open transaction: pid, seconds, name of its program."""
    if not on:
        return look("autovacuum or track_counts is off: claims get slower with every job", "turn both on")
    if tables_off:
        return look(f"autovacuum is off for {', '.join(tables_off)}", "alter table … reset (autovacuum_enabled)")
    if oldest is not None and oldest[1] > OLD_SNAPSHOT:
        pid, age, name = oldest
        text = (
            f"a transaction of {name or 'an unnamed program'} (pid {pid}) has been open for {age / 60:.0f} min:"
            " claims get slower"
        )
        return look(text, f"end it there, or with `select pg_terminate_backend({pid})`")
    return ok("autovacuum is on, and no transaction has been open for long")

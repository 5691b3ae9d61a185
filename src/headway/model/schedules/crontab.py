"""Converts a crontab to schedules: each line becomes one command, run by the shell as cron runs it. Pure.

All problems are reported together. Features of cron that a schedule lacks are left out and listed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.errors import BadInput
from headway.model.schedules import cron
from headway.model.values.names import MAX_NAME

# A value's blanks are stripped later: a pattern that strips them looks at each of them many times.
_SETTING = re.compile(r"""\s*("[^"]*"|'[^']*'|[A-Za-z_][A-Za-z0-9_]*)\s*=(.*)""")
_HEADING = re.compile(r"#\s*(m\s+h\s|minute\s+hour|\*\s+\*)|#\s*[-=#*|.┌│└]", re.IGNORECASE)
_PERCENT = re.compile(r"(\\?)%")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=\S*")
_SEPARATOR = re.compile(r"&&|\|\||;|\|")
# Settings of cron itself. Headway sends no mail, and its delay is `jitter`.
_OF_CRON = ("MAILTO", "MAILFROM", "RANDOM_DELAY", "CRON_WITHIN", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING")
# Programs that run another program, which names the line.
_RUNNERS = ("sudo", "nice", "ionice", "chronic", "env", "exec", "nohup", "setsid", "time", "timeout", "flock")
_LANGUAGES = ("bash", "sh", "zsh", "dash", "python", "python2", "python3", "perl", "ruby", "node", "php")
_WRAPPERS = {*_RUNNERS, *_LANGUAGES}
_NO_WORK = ("cd", "test", "[", "if", ".")
_SHELL = "/bin/sh"


@dataclass(frozen=True, slots=True)
class CrontabEntry:
    """One line of a crontab: a suggested name, and a definition for `Definition.parse`."""

    line: int
    name: str
    definition: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Crontab:
    """A parsed crontab. `problems` make it unusable; `left_out` lists features without a counterpart."""

    entries: tuple[CrontabEntry, ...]
    problems: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(slots=True)
class _CrontabReader:
    """The state of the parser. A setting holds for all later lines, a comment for the next line."""

    zone: str
    home: str | None
    user_column: bool
    env: dict[str, str] = field(default_factory=dict)
    remark: list[str] = field(default_factory=list)
    entries: list[CrontabEntry] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def read(self, number: int, line: str) -> None:
        text = line.strip()
        if not text:
            self.remark = []
        elif text.startswith("#"):
            if not _HEADING.match(text):
                self.remark.append(text.lstrip("#").strip())
        elif (setting := _SETTING.fullmatch(line)) is not None:
            self._set(number, setting[1].strip("\"'"), _unquoted(setting[2].strip()))
            self.remark = []
        else:
            self._entry(number, text)
            self.remark = []

    def _set(self, number: int, name: str, value: str) -> None:
        if name == "CRON_TZ":
            try:
                self.zone = cron.check_zone(value)
            except BadInput as error:
                self.problems.append(f"line {number}: CRON_TZ: {error}")
        elif name in _OF_CRON:
            if value:
                self.left_out.append(f"line {number}: {name} is a setting of cron and has no effect here")
        else:
            self.env[name] = value

    def _entry(self, number: int, text: str) -> None:
        expression, rest = _split(text)
        if expression.lower() == "@reboot":
            self.left_out.append(f"line {number}: @reboot is not a time: start this command at boot")
            return
        try:
            cron.parse(expression)
        except BadInput as error:
            self.problems.append(f"line {number}: {error}")
            return
        user, command = _user(rest) if self.user_column else (None, rest)
        if not command:
            missing = "a user and a command" if self.user_column else "a command"
            self.problems.append(f"line {number}: {missing} must follow the time")
            return
        self.entries.append(CrontabEntry(number, suggested_name(command), self._definition(expression, user, command)))

    def _definition(self, expression: str, user: str | None, command: str) -> dict[str, Any]:
        line, stdin = _input(command)
        env = {name: value for name, value in self.env.items() if name not in ("SHELL", "HOME")}
        shell = self.env.get("SHELL", _SHELL)
        # The task `command` calls /bin/sh itself. Any other shell is called as a program.
        program = {"argv": line, "shell": True} if shell == _SHELL else {"argv": [shell, "-c", line]}
        home = self.env.get("HOME", self.home)
        more = {"env": env or None, "cwd": home, "stdin": stdin}
        params = {**program, **{name: value for name, value in more.items() if value is not None}}
        notes = [*self.remark, *([f"cron ran it as {user}"] if user else [])]
        return {
            "cron": expression,
            "timezone": self.zone,
            # Cron does not retry.
            "steps": [{"task": "command", "params": params, "retry_policy": {"max_attempts": 0}}],
            **({"note": "\n".join(notes)} if notes else {}),
        }


def read(text: str, *, zone: str, home: str | None = None, user_column: bool = False) -> Crontab:
    """Parses a crontab. `zone` is the time zone of its machine.

    `user_column` means that a sixth field names a user, as in /etc/crontab.
    """
    reader = _CrontabReader(zone, home, user_column)
    for number, line in enumerate(text.split("\n"), 1):
        reader.read(number, line.rstrip("\r"))
    return Crontab(tuple(reader.entries), tuple(reader.problems), tuple(reader.left_out))


def _split(text: str) -> tuple[str, str]:
    """Splits a line into its time and the rest."""
    parts = text.split(None, 1 if text.startswith("@") else 5)
    if text.startswith("@"):
        return parts[0], parts[1] if len(parts) > 1 else ""
    return " ".join(parts[:5]), parts[5] if len(parts) > 5 else ""


def _user(rest: str) -> tuple[str, str]:
    user, _, command = rest.partition(" ")
    if "\t" in user:
        user, _, command = rest.partition("\t")
    return user, command.strip()


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _input(command: str) -> tuple[str, str | None]:
    """Splits a command from its input at the first `%`.

    Further `%` signs are line ends of the input; `\\%` is a percent sign.
    """
    pieces, start = [], 0
    for match in _PERCENT.finditer(command):
        if not match[1]:
            pieces.append(command[start : match.start()])
            start = match.end()
    pieces.append(command[start:])
    line, *lines = (piece.replace("\\%", "%") for piece in pieces)
    return line.strip(), "".join(f"{input_line}\n" for input_line in lines) if lines else None


def suggested_name(command: str) -> str:
    """Suggests a name for a command: its main program, without folder and extension."""
    for part in _SEPARATOR.split(command):
        words = part.split()
        if not words or words[0] in _NO_WORK:
            continue
        for word in words:
            plain = word.strip("\"'()")
            base = plain.rstrip("/").rsplit("/", 1)[-1]
            skipped = plain.startswith(("-", ">", "<", "$")) or plain.isdigit() or _ASSIGNMENT.fullmatch(plain)
            if base and not skipped and base not in _WRAPPERS and not plain.endswith(".lock"):
                return _clean(base.rsplit(".", 1)[0] or base)
    return "command"


def _clean(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip("-")[: MAX_NAME - 10] or "command"

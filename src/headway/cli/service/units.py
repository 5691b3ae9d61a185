"""Renders a systemd unit or a launchd property list. Pure.

Both follow the shutdown of a worker: the first SIGTERM goes to the worker alone, which gives its jobs their grace and
ends their processes itself. The service manager kills only the processes that remain after that.
"""

from __future__ import annotations

import math
import plistlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from headway.errors import BadInput

# Time after the grace to kill jobs, record their ends and finish HTTP answers (engine.supervisor).
AFTER_GRACE = 60
RESTART_SECONDS = 2
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,100}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}|[0-9]{1,10}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PATTERN = re.compile(r"([*?\[\]\\])")
# systemd refuses a program path with these characters, but accepts them in arguments.
_UNSAYABLE = re.compile(r"""["'\\]""")
_PASSED_ON = ("/bin/sh", "-c", 'exec "$0" "$@"')
# launchd has no environment files, so a shell reads the file. A value is taken literally, without expansion. The shell
# replaces itself by the program, so that signals reach the program.
_WITH_FILE = """\
if [ -r "$0" ]; then
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in *=*)
      case ${line%%=*} in '' | [0-9]* | *[!A-Za-z0-9_]*) ;; *) export "$line" ;; esac
    esac
  done < "$0"
fi
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class UnitConfig:
    """The values of a service file.

    `environment` is the path of the variables file, `grace` the shutdown grace in seconds.
    """

    name: str
    argv: Sequence[str]
    folder: str
    environment: str
    grace: float
    user: str | None = None
    after: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise BadInput("--name must consist of letters, digits and .-_@, like headway-shop", field="name")
        if self.user is not None and not _USER.fullmatch(self.user):
            raise BadInput("--user must be the name of a user of this machine, like headway", field="user")
        for text in (*self.argv, self.folder, self.environment):
            if _CONTROL.search(text):
                raise BadInput(f"{text!r} has control characters, which a service file cannot contain: rename it")
        for path in (self.folder, self.environment):
            if path != path.strip() or path.endswith("\\"):
                raise BadInput(f"{path!r} begins or ends with a space, or ends with a backslash: rename it")

    @property
    def patience(self) -> int:
        """Returns the seconds that the service manager waits before it kills: the grace and a margin."""
        return math.ceil(self.grace) + AFTER_GRACE


# --- systemd ------------------------------------------------------------------------------------------------------


def systemd(wanted: UnitConfig) -> str:
    after = " ".join(("network-online.target", *wanted.after))
    user = f"User={wanted.user}\n" if wanted.user is not None else ""
    return f"""\
[Unit]
Description=Headway ({_specifiers(wanted.folder)})
Wants=network-online.target
After={after}
# Restart it however often it fails.
StartLimitIntervalSec=0

[Service]
Type=exec
{user}WorkingDirectory={_specifiers(wanted.folder)}
# HEADWAY_* variables and secrets, one NAME=value per line. Only its owner should be able to read it.
EnvironmentFile=-{_literal(wanted.environment)}
ExecStart={_command(wanted.argv)}
Restart=always
RestartSec={RESTART_SECONDS}
# Exit code 2 means wrong settings or arguments: a restart does not help.
RestartPreventExitStatus=2
# The signal goes to Headway alone, which gives its jobs the grace and ends their processes itself. Processes that
# remain after that are killed.
KillMode=mixed
# Each task process gets a control group of its own within the service's, so that daemons it leaves behind are found.
Delegate=yes
KillSignal=SIGTERM
# shutdown_grace ({wanted.grace:g} s), plus time to kill and record jobs that did not end.
TimeoutStopSec={wanted.patience}
# A task that uses too much memory fails alone; the others continue.
OOMPolicy=continue
# Tasks are your programs and are not restricted. Enable these if no task needs sudo, system files or a shared /tmp:
#NoNewPrivileges=yes
#ProtectSystem=full
#PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""


def _command(argv: Sequence[str]) -> str:
    """Renders ExecStart. The prefix `:` turns off `$` expansion.

    Older versions of systemd do not know it, so it is used only if needed.
    """
    passed_on = _PASSED_ON if _UNSAYABLE.search(argv[0]) else ()
    words = " ".join(_quoted(word) for word in (*passed_on, *argv))
    return f":{words}" if "$" in words else words


def _quoted(word: str) -> str:
    text = _specifiers(word)
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _literal(path: str) -> str:
    """Escapes a path for a setting in which systemd accepts glob patterns."""
    return _specifiers(_PATTERN.sub(r"\\\1", path))


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")


# --- launchd ------------------------------------------------------------------------------------------------------


def launchd(wanted: UnitConfig, *, log: str) -> str:
    facts: dict[str, object] = {
        "Label": wanted.name,
        "ProgramArguments": ["/bin/sh", "-c", _WITH_FILE, wanted.environment, *wanted.argv],
        "WorkingDirectory": wanted.folder,
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": RESTART_SECONDS,
        "ExitTimeOut": wanted.patience,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    if wanted.user is not None:
        facts["UserName"] = wanted.user
    return plistlib.dumps(facts, sort_keys=False).decode()

"""How a service manager is told to run a program: a unit of systemd, a property list of launchd. Pure.

What both are told follows from how a worker ends: the first SIGTERM goes to it alone, it gives its jobs their grace and
ends their processes itself; only what is still there after that is killed.
"""

from __future__ import annotations

import math
import plistlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from headway.errors import BadInput

# After the grace: work that is killed, the last records, answers under way (engine.supervisor).
AFTER_GRACE = 60
RESTART_SECONDS = 2
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,100}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}|[0-9]{1,10}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PATTERN = re.compile(r"([*?\[\]\\])")
# systemd takes no program whose path has these in it; an argument may.
_UNSAYABLE = re.compile(r"""["'\\]""")
_PASSED_ON = ("/bin/sh", "-c", 'exec "$0" "$@"')
# launchd knows no files of variables. What stands behind a name is taken as it is: it is no text of the shell's. The
# shell becomes the program, so signals reach it as they should.
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
class Wanted:
    """What is to run where, as whom; `environment` is the file of variables it gets, `grace` what its jobs get."""

    name: str
    argv: Sequence[str]
    folder: str
    environment: str
    grace: float
    user: str | None = None
    after: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise BadInput("--name must be letters, digits and .-_@, like headway-shop", field="name")
        if self.user is not None and not _USER.fullmatch(self.user):
            raise BadInput("--user must be the name of a user of this machine, like headway", field="user")
        for text in (*self.argv, self.folder, self.environment):
            if _CONTROL.search(text):
                raise BadInput(f"{text!r} has control characters, which no service file can name: rename it")
        for path in (self.folder, self.environment):
            if path != path.strip() or path.endswith("\\"):
                raise BadInput(f"{path!r} ends with what no service file can name: rename it")

    @property
    def patience(self) -> int:
        """How long its end may take, in seconds: longer than the grace."""
        return math.ceil(self.grace) + AFTER_GRACE


# --- systemd ------------------------------------------------------------------------------------------------------


def systemd(wanted: Wanted) -> str:
    after = " ".join(("network-online.target", *wanted.after))
    user = f"User={wanted.user}\n" if wanted.user is not None else ""
    return f"""\
[Unit]
Description=Headway ({_specifiers(wanted.folder)})
Wants=network-online.target
After={after}
# It is to come back however often it fails.
StartLimitIntervalSec=0

[Service]
Type=exec
{user}WorkingDirectory={_specifiers(wanted.folder)}
# HEADWAY_* variables and secrets, one NAME=value a line. Readable for its owner only.
EnvironmentFile=-{_literal(wanted.environment)}
ExecStart={_command(wanted.argv)}
Restart=always
RestartSec={RESTART_SECONDS}
# Wrong settings or arguments: starting again does not help.
RestartPreventExitStatus=2
# The signal goes to Headway alone, which gives its jobs the grace and ends their processes itself. What is left after
# that, with all it has started, is killed.
KillMode=mixed
KillSignal=SIGTERM
# shutdown_grace ({wanted.grace:g} s), and time to kill and record what did not end.
TimeoutStopSec={wanted.patience}
# A task that takes too much memory fails by itself; the others go on.
OOMPolicy=continue
# Tasks are your programs: nothing keeps them from anything. Where none needs sudo, system files or a common /tmp:
#NoNewPrivileges=yes
#ProtectSystem=full
#PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""


def _command(argv: Sequence[str]) -> str:
    """`:` keeps `$` as it is; older versions of systemd do not know it, so it is there only where it is needed."""
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
    """A path where systemd takes patterns."""
    return _specifiers(_PATTERN.sub(r"\\\1", path))


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")


# --- launchd ------------------------------------------------------------------------------------------------------


def launchd(wanted: Wanted, *, log: str) -> str:
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

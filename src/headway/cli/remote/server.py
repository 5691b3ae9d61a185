"""Which server a command talks to, and with which token."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from headway.errors import BadInput, Refused

URL_VARIABLE, TOKEN_VARIABLE = "HEADWAY_SERVER", "HEADWAY_TOKEN"
TOKEN_FILE = Path("~/.config/headway/token")
_MOST = 4096


@dataclass(frozen=True, slots=True)
class Server:
    """Where it is, and who we are there. Without a token we are whoever may come without one."""

    url: str
    token: str | None = field(default=None, repr=False)
    tenant: str | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line said about a server."""

    url: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    database: str | None = None
    tenant: str | None = None


def choose(wanted: Wanted, environ: Mapping[str, str]) -> Server | None:
    """The server, or None: the local database. An option counts more than the environment."""
    if wanted.url is not None and wanted.database is not None:
        raise BadInput("--server and --database contradict each other: leave one out", field="server")
    url = wanted.url if wanted.url is not None or wanted.database is not None else environ.get(URL_VARIABLE) or None
    if url is None:
        if wanted.token is not None or wanted.token_file is not None:
            raise BadInput(f"a token is for a server: name it with --server or {URL_VARIABLE}", field="server")
        return None
    label = "--server" if wanted.url is not None else URL_VARIABLE
    return Server(check_url(url, label), find_token(wanted, environ), wanted.tenant)


def check_url(text: str, label: str = "--server") -> str:
    wrong = BadInput(f"{label} must be an address like https://jobs.example.org, not {text!r}", field="server")
    try:
        found = urlsplit(text.strip())
        found.port  # noqa: B018 - a number that is none is refused where it is read
    except ValueError:
        raise wrong from None
    if found.scheme not in ("http", "https") or not found.hostname:
        raise wrong
    if found.username is not None or found.query or found.fragment:
        raise BadInput(f"{label} must be the bare address of a server: a token goes into --token-file", field="server")
    return text.strip().rstrip("/")


def find_token(wanted: Wanted, environ: Mapping[str, str]) -> str | None:
    """--token, --token-file, the environment, and then the usual file if it is there."""
    if wanted.token is not None:
        return check_token(wanted.token, "--token")
    if wanted.token_file is not None:
        return read_token(wanted.token_file)
    if environ.get(TOKEN_VARIABLE):
        return check_token(environ[TOKEN_VARIABLE], TOKEN_VARIABLE)
    usual = TOKEN_FILE.expanduser()
    return read_token(usual) if usual.exists() else None


def read_token(path: Path) -> str:
    """Whoever can read the file can do what the token can."""
    try:
        with open(path.expanduser(), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise Refused(f"{path} is not a file: name another one with --token-file", code="token_file")
            if found.st_mode & 0o177:
                mode = stat.S_IMODE(found.st_mode)
                text = f"{path} has the mode {mode:04o}, and a token is its owner's alone: chmod 600 {path}"
                raise Refused(text, code="token_file")
            return check_token(file.read(_MOST).decode("ascii", "replace"), str(path))
    except OSError as error:
        text = f"{path} cannot be read ({error.strerror}): name another file with --token-file"
        raise BadInput(text, field="token_file") from None


def check_token(text: str, label: str) -> str:
    """It is never repeated in a message."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadInput(f"{label} has no token in it: one is a word like hw_…", field="token")
    return token

"""Chooses the server that a command uses, and the token for it."""

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
class ServerAddress:
    """The address of a server, the token and the tenant. Without a token the requests are anonymous."""

    url: str
    token: str | None = field(default=None, repr=False)
    tenant: str | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of the command line that concern a server."""

    url: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    database: str | None = None
    tenant: str | None = None


def choose(wanted: ServerOptions, environ: Mapping[str, str]) -> ServerAddress | None:
    """Returns the server, or None for the local database. An option overrides the environment."""
    if wanted.url is not None and wanted.database is not None:
        raise BadInput("--server and --database exclude each other: remove one of them", field="server")
    url = wanted.url if wanted.url is not None or wanted.database is not None else environ.get(URL_VARIABLE) or None
    if url is None:
        if wanted.token is not None or wanted.token_file is not None:
            raise BadInput(f"a token needs a server: name the server with --server or {URL_VARIABLE}", field="server")
        return None
    label = "--server" if wanted.url is not None else URL_VARIABLE
    return ServerAddress(check_url(url, label), find_token(wanted, environ), wanted.tenant)


def check_url(text: str, label: str = "--server") -> str:
    wrong = BadInput(f"{label} must be an address like https://jobs.example.org, not {text!r}", field="server")
    try:
        found = urlsplit(text.strip())
        found.port  # noqa: B018 - reading it raises ValueError for a port that is not a number
    except ValueError:
        raise wrong from None
    if found.scheme not in ("http", "https") or not found.hostname:
        raise wrong
    if found.username is not None or found.query or found.fragment:
        text = f"{label} must be an address without user, query or fragment: give a token with --token-file"
        raise BadInput(text, field="server")
    return text.strip().rstrip("/")


def find_token(wanted: ServerOptions, environ: Mapping[str, str]) -> str | None:
    """Returns the token of --token, --token-file, the environment or the default file, in this order.

    Returns None if there is none.
    """
    if wanted.token is not None:
        return check_token(wanted.token, "--token")
    if wanted.token_file is not None:
        return read_token(wanted.token_file)
    if environ.get(TOKEN_VARIABLE):
        return check_token(environ[TOKEN_VARIABLE], TOKEN_VARIABLE)
    default = TOKEN_FILE.expanduser()
    return read_token(default) if default.exists() else None


def read_token(path: Path) -> str:
    """Reads a token from a file; refuses a file that other users may access."""
    try:
        with open(path.expanduser(), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise Refused(f"{path} is not a file: name another one with --token-file", code="token_file")
            if found.st_mode & 0o177:
                mode = stat.S_IMODE(found.st_mode)
                text = f"{path} has mode {mode:04o}, and only its owner may read a token: run `chmod 600 {path}`"
                raise Refused(text, code="token_file")
            return check_token(file.read(_MOST).decode("ascii", "replace"), str(path))
    except OSError as error:
        text = f"{path} cannot be read ({error.strerror}): name another file with --token-file"
        raise BadInput(text, field="token_file") from None


def check_token(text: str, label: str) -> str:
    """Checks the form of a token. The message of a refusal does not repeat the token."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadInput(f"{label} does not hold a token: a token is one word like hw_…", field="token")
    return token

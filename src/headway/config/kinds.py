"""The kinds of value that settings have, and what is said about one that is none of its kind."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from headway.errors import BadInput
from headway.model import policies, values
from headway.model.postgres_address import NOT_UNDERSTOOD, misread

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,255}")
_DOTTED = re.compile(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)+")
_APP = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_KEYWORDS = re.compile(r"(?i)(^|\s)(host|hostaddr|dbname|user|service)\s*=")


def _by(check: Callable[..., Any]) -> Callable[[object], Any]:
    """A check of `values` as pydantic wants it: the place is ours to tell."""

    def validate(value: object) -> Any:
        try:
            return check(value, field="")
        except BadInput as error:
            raise ValueError(error.facts["problem"]) from None

    return validate


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    raise ValueError("must be a whole number")


def _none(value: object) -> object:
    return None if isinstance(value, str) and value.strip().lower() == "none" else value


def _hosts(value: str) -> str:
    for part in value.split(","):
        if not _HOST.fullmatch(part.strip()):
            raise ValueError("must be names of hosts with commas, like jobs.example.com, jobs.local")
    return value


def _folder(value: object) -> Path:
    if isinstance(value, str | Path) and str(value).strip() and "\x00" not in str(value):
        return Path(value)
    raise ValueError("must be the path of a folder")


def _app(value: str) -> str:
    if not _APP.fullmatch(value):
        raise ValueError("must be a module and a name in it, like myproject.jobs:app")
    return value


def _policy(value: str) -> str:
    if value not in policies.BUILT_IN and not _DOTTED.fullmatch(value):
        near = values.closest(value, policies.BUILT_IN)
        hint = f": did you mean {near}?" if near else ""
        raise ValueError(f"must be {', '.join(policies.BUILT_IN)}, or a class of yours like shop.policies.Mine{hint}")
    return value


def _aging(value: float) -> float:
    if value < 0.001:
        raise ValueError("must be at least 1ms: waiting that long counts as one more priority")
    return value


def _resource(value: str) -> str:
    if value == policies.GLOBAL or value.startswith("task:"):
        raise ValueError("is the name of a lane of its own: give the resource another one")
    return value


def is_postgres(value: str) -> bool:
    return value.startswith(("postgresql://", "postgres://"))


def _database(value: str) -> str:
    if not value.strip() or "\x00" in value:
        raise ValueError("must be a file, or postgresql://user@host/name")
    if _KEYWORDS.search(value) or ("://" in value and not is_postgres(value)):
        raise ValueError("must be a file or a PostgreSQL address: write it like postgresql://user@host/name")
    return understood(value) if is_postgres(value) else value


def understood(value: str) -> str:
    """An address that the driver can read. Without a driver nobody knows, and opening says what is missing."""
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        return value
    try:
        wrong = misread(conninfo_to_dict(value))
    except ProgrammingError:
        wrong = True
    if wrong:
        raise ValueError(NOT_UNDERSTOOD)
    return value


def _connection(value: str) -> str:
    file = "://" not in value and ("/" in value or value.endswith((".db", ".sqlite", ".sqlite3")))
    if not (is_postgres(value) or file) or "\x00" in value:
        raise ValueError("must be an address such as postgresql://user@host/name, or a file such as ./shop.db")
    return value


def _reference(value: str) -> str:
    kind, _, rest = value.partition(":")
    if kind not in ("env", "file") or not rest.strip():
        raise ValueError("must say where the secret is, not what it is: env:VARIABLE or file:/path")
    return value


OrNone = BeforeValidator(_none)
Whole = BeforeValidator(_whole)
Name = Annotated[str, AfterValidator(_by(values.check_name))]
TaskName = Annotated[str, AfterValidator(_by(values.check_task_name))]
Count = Annotated[int, Whole, Field(ge=1, le=1_000_000)]
Duration = Annotated[float, BeforeValidator(_by(values.seconds))]
SomeTime = Annotated[Duration, Field(gt=0)]
Aging = Annotated[Duration, AfterValidator(_aging)]
Policy = Annotated[str, AfterValidator(_policy)]
Resource = Annotated[Name, AfterValidator(_resource)]
AppName = Annotated[str, AfterValidator(_app)]
Hosts = Annotated[str, AfterValidator(_hosts)]
Folder = Annotated[Path, BeforeValidator(_folder)]
Address = Annotated[str, AfterValidator(_database)]
Secret = Annotated[str, AfterValidator(_reference)]
Connection = Annotated[str, AfterValidator(_connection)]

TOGETHER = "together"


def together(problem: str) -> PydanticCustomError:
    """Two settings, each fine by itself, that do not go together."""
    return PydanticCustomError(TOGETHER, "{problem}", {"problem": problem})

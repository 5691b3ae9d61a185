"""The types of settings, and the messages for values that are not valid."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from headway.errors import BadInput
from headway.model.access.secrets import OwnedSecret
from headway.model.access.tenants import EVERYBODY
from headway.model.queue import policies
from headway.model.values import names, suggestions, times
from headway.store.postgres.url import NOT_UNDERSTOOD, misread

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,255}")
_DOTTED = re.compile(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)+")
_APP = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_KEYWORDS = re.compile(r"(?i)(^|\s)(host|hostaddr|dbname|user|service)\s*=")


def _by(check: Callable[..., Any]) -> Callable[[object], Any]:
    """Wraps a check of `model.values` for pydantic; the message leaves out the field, which `load` adds."""

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
            raise ValueError("must be host names separated by commas, like jobs.example.com, jobs.local")
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
        near = suggestions.closest(value, policies.BUILT_IN)
        hint = f": did you mean {near}?" if near else ""
        raise ValueError(f"must be {', '.join(policies.BUILT_IN)}, or your own class like shop.policies.Mine{hint}")
    return value


def _aging(value: float) -> float:
    if value < 0.001:
        raise ValueError("must be at least 1ms: each such interval of waiting adds 1 to the priority")
    return value


def _resource(value: str) -> str:
    if value == policies.GLOBAL or value.startswith("task:"):
        raise ValueError("is the name of a built-in lane: give the resource another name")
    return value


def is_postgres(value: str) -> bool:
    return value.startswith(("postgresql://", "postgres://"))


_SQLITE = "sqlite:///"


def _path_of(value: str) -> str:
    """Returns the path of an sqlite:/// address, and other addresses unchanged.

    As in SQLAlchemy, the path of sqlite:///shop.db is relative and that of sqlite:////srv/shop.db absolute.
    """
    if not value.startswith(_SQLITE):
        return value
    path = value.removeprefix(_SQLITE)
    if not path or "?" in path or path == ":memory:":
        raise ValueError("must name a file and nothing else after sqlite:///, such as sqlite:///./shop.db")
    return path if "/" in path else f"./{path}"


def _database(value: str) -> str:
    value = _path_of(value)
    if not value.strip() or "\x00" in value:
        raise ValueError("must be a file, or postgresql://user@host/name")
    if _KEYWORDS.search(value) or ("://" in value and not is_postgres(value)):
        raise ValueError("must be a file or a PostgreSQL address: write it like postgresql://user@host/name")
    return understood(value) if is_postgres(value) else value


def understood(value: str) -> str:
    """Returns an address that the driver can parse, or raises ValueError.

    Without the driver the address passes; opening the database then reports the missing package.
    """
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
    value = _path_of(value)
    file = "://" not in value and ("/" in value or value.endswith((".db", ".sqlite", ".sqlite3")))
    if not (is_postgres(value) or file) or "\x00" in value:
        raise ValueError(
            "must be an address such as postgresql://user@host/name or sqlite:///./shop.db, or a file such as ./shop.db"
        )
    return value


def _secret(value: object) -> OwnedSecret:
    """Returns a secret of its source alone, or of a table that names its owners too."""
    if isinstance(value, OwnedSecret):
        return value
    table = {"from": value} if isinstance(value, str) else value
    if not isinstance(table, dict) or not table.keys() <= {"from", "tenants", "tasks"} or "from" not in table:
        raise ValueError(
            'must be env:VARIABLE or file:/path, or a table such as { from = "env:SHOP_KEY", tenants = ["shop"],'
            ' tasks = ["http"] }'
        )
    source = table["from"]
    kind, _, rest = source.partition(":") if isinstance(source, str) else ("", "", "")
    if kind not in ("env", "file") or not rest.strip():
        raise ValueError("must name the source of the secret, not the secret itself: env:VARIABLE or file:/path")
    lists = {name: _names(name, table[name]) for name in ("tenants", "tasks") if name in table}
    return OwnedSecret(source, **lists)


def _names(field: str, value: object) -> tuple[str, ...]:
    names = [value] if value == EVERYBODY else value
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(f'must have a list of names as {field}, or "{EVERYBODY}" for all')
    return tuple(names)


OrNone = BeforeValidator(_none)
Whole = BeforeValidator(_whole)
Name = Annotated[str, AfterValidator(_by(names.check_name))]
TaskName = Annotated[str, AfterValidator(_by(names.check_task_name))]
Count = Annotated[int, Whole, Field(ge=1, le=1_000_000)]
Duration = Annotated[float, BeforeValidator(_by(times.seconds))]
SomeTime = Annotated[Duration, Field(gt=0)]
Aging = Annotated[Duration, AfterValidator(_aging)]
Policy = Annotated[str, AfterValidator(_policy)]
Resource = Annotated[Name, AfterValidator(_resource)]
AppName = Annotated[str, AfterValidator(_app)]
Hosts = Annotated[str, AfterValidator(_hosts)]
Folder = Annotated[Path, BeforeValidator(_folder)]
Address = Annotated[str, AfterValidator(_database)]
Secret = Annotated[OwnedSecret, BeforeValidator(_secret)]
Connection = Annotated[str, AfterValidator(_connection)]

TOGETHER = "together"


def together(problem: str) -> PydanticCustomError:
    """Returns the error for two settings that are valid alone and contradict each other."""
    return PydanticCustomError(TOGETHER, "{problem}", {"problem": problem})

"""The settings: one validated, frozen value from defaults < `headway.toml` < `HEADWAY_*` < flags.

`load()` reads every source before it judges any, so that all problems are told at once, each with the file and line,
the variable or the flag it comes from. Finished work is kept for 30 days (`retention`) unless told otherwise: long
enough to look into last month's failures, short enough that a file on one disk does not grow for ever.
"""

from __future__ import annotations

import re
import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from headway.errors import BadInput
from headway.model import policies, values

DEFAULT_FILE = Path("headway.toml")
PREFIX = "HEADWAY_"
# Of the test suite, and of the processes of a job: a job may call `headway` itself.
NOT_SETTINGS = (
    *("HEADWAY_TEST_", "HEADWAY_PROOF", "HEADWAY_WORK", "HEADWAY_JOB_ID", "HEADWAY_FENCE"),
    # Where the command line finds a server, and who it is there.
    *("HEADWAY_SERVER", "HEADWAY_TOKEN", "HEADWAY_TENANT"),
)

# A setting's place: its names from the outside in. Not dotted text, because names inside maps have dots of their own.
_Path = tuple[str, ...]

_MINUTE, _DAY = 60.0, 86_400.0
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,255}")
_DOTTED = re.compile(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)+")
_APP = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_KEYWORDS = re.compile(r"(?i)(^|\s)(host|hostaddr|dbname|user|service)\s*=")
_MAY_BE_NONE = {"concurrency.limit", "aging", "retention"}
_LINE = re.compile(r" \(at line ([0-9]+), column [0-9]+\)")
_USER_PASSWORD = re.compile(r"(://[^:/?#@]*):.*@", re.DOTALL)
_PASSWORD = re.compile(r"(?i)(\w*(?:pass|pwd|secret|token|key)\w*\s*=\s*)('(?:[^'\\]|\\.)*'?|\S*)")

# --- the kinds of value -------------------------------------------------------------------------------------------


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


def _is_postgres(value: str) -> bool:
    return value.startswith(("postgresql://", "postgres://"))


def _database(value: str) -> str:
    if not value.strip() or "\x00" in value:
        raise ValueError("must be a file, or postgresql://user@host/name")
    if _KEYWORDS.search(value) or ("://" in value and not _is_postgres(value)):
        raise ValueError("must be a file or a PostgreSQL address: write it like postgresql://user@host/name")
    return value


def _connection(value: str) -> str:
    file = "://" not in value and ("/" in value or value.endswith((".db", ".sqlite", ".sqlite3")))
    if not (_is_postgres(value) or file) or "\x00" in value:
        raise ValueError("must be an address such as postgresql://user@host/name, or a file such as ./shop.db")
    return value


def _reference(value: str) -> str:
    kind, _, rest = value.partition(":")
    if kind not in ("env", "file") or not rest.strip():
        raise ValueError("must say where the secret is, not what it is: env:VARIABLE or file:/path")
    return value


Name = Annotated[str, AfterValidator(_by(values.check_name))]
TaskName = Annotated[str, AfterValidator(_by(values.check_task_name))]
Count = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=1_000_000)]
Duration = Annotated[float, BeforeValidator(_by(values.seconds))]
SomeTime = Annotated[Duration, Field(gt=0)]
Secret = Annotated[str, AfterValidator(_reference)]
Connection = Annotated[str, AfterValidator(_connection)]

_TOGETHER = "together"


def _together(problem: str) -> PydanticCustomError:
    """Two settings, each fine by itself, that do not go together."""
    return PydanticCustomError(_TOGETHER, "{problem}", {"problem": problem})


# --- the settings -------------------------------------------------------------------------------------------------


class _Frozen(BaseModel):
    # Inputs stay out of pydantic's own messages: one of them may be a password.
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True)


class Concurrency(_Frozen):
    policy: Annotated[str, AfterValidator(_policy)] = Field(
        default="global",
        description="Which lanes a job without a target needs: global, per_task, per_resource or a class of yours",
    )
    limit: Annotated[Count | None, BeforeValidator(_none)] = Field(
        default=1, description='How many jobs may run at once on the policy\'s lane, or "none"'
    )
    limits: Mapping[Name, Count] = Field(
        default_factory=dict, description="The limits of single lanes: of tasks under per_task, of your own policy's"
    )
    targets: Literal["own", "global"] = Field(
        default="own", description='Jobs with a target take its lane only (own), or the policy\'s lane too ("global")'
    )

    def value(self, aging: float | None) -> policies.Concurrency:
        """What is kept in the database."""
        limits = tuple(sorted(self.limits.items()))
        return policies.Concurrency(self.policy, self.targets, self.limit, limits, aging)


class RetryDefaults(_Frozen):
    max_attempts: Annotated[int, BeforeValidator(_whole), Field(ge=0, le=1_000)] = Field(
        default=3, description="Automatic retries of a job that does not say (a job on a target: 0)"
    )
    base_delay: Duration = Field(default=10.0, description="Wait before the first retry; doubles with each further one")


class Webhooks(_Frozen):
    allow_private: bool = Field(default=False, description="Deliver to private and loopback addresses too")


class Legacy(_Frozen):
    story: TaskName = Field(default="story.generate", description="The task behind POST /jobs/story/trigger")
    research: TaskName = Field(default="research.run", description="The task behind POST /jobs/research/trigger")


class Settings(_Frozen):
    """All settings. The order matters twice: `listen` is judged by `database`, `lease` by `heartbeat`."""

    app: Annotated[Annotated[str, AfterValidator(_app)] | None, BeforeValidator(_none)] = Field(
        default=None, description="Where the App is, as module:name"
    )
    database: Annotated[str, AfterValidator(_database)] = Field(
        default="headway.db", repr=False, description="An SQLite file, or a postgresql:// address"
    )
    listen: Annotated[str | None, BeforeValidator(_none)] = Field(
        default=None,
        repr=False,
        description="A direct PostgreSQL address for LISTEN, when database is a transaction pooler",
    )
    host: Name = Field(default="127.0.0.1", description="The address the HTTP server binds")
    port: Annotated[int, BeforeValidator(_whole), Field(ge=0, le=65_535)] = Field(
        default=8642, description="The port of the HTTP server; 0 takes a free one"
    )
    hosts: Annotated[Annotated[str, AfterValidator(_hosts)] | None, BeforeValidator(_none)] = Field(
        default=None, description="More names by which the HTTP server may be called, with commas"
    )
    slots: Count = Field(default=4, description="How many jobs one worker runs at once")
    concurrency: Concurrency = Field(default_factory=Concurrency, description="What limits concurrency across workers")
    resources: Mapping[Annotated[Name, AfterValidator(_resource)], Count] = Field(
        default_factory=dict, description="Named pools and how many jobs may use each at once"
    )
    heartbeat: SomeTime = Field(default=2.0, description="How often a worker renews its claims")
    lease: SomeTime = Field(default=60.0, description="How long a claim lives without renewal: at least 3 heartbeats")
    recovery_interval: SomeTime = Field(default=30.0, description="How often each process looks for lost work")
    shutdown_grace: Duration = Field(default=30.0, description="How long running jobs may go on after a stop signal")
    retry: RetryDefaults = Field(default_factory=RetryDefaults, description="The retry policy of jobs that bring none")
    reservation_ttl: SomeTime = Field(
        default=10 * _MINUTE, description="How long a reservation of a program outside lives after its last renewal"
    )
    direct_wait: Duration = Field(default=300.0, description="How long a direct call may wait for its slot")
    aging: Annotated[Annotated[Duration, AfterValidator(_aging)] | None, BeforeValidator(_none)] = Field(
        default=None, description='Waiting this long counts as one more priority; "none" turns it off'
    )
    retention: Annotated[SomeTime | None, BeforeValidator(_none)] = Field(
        default=30 * _DAY, description='How long finished work is kept; "none" keeps it for ever'
    )
    webhooks: Webhooks = Field(default_factory=Webhooks, description="What webhooks may do")
    connections: Mapping[Name, Connection] = Field(
        default_factory=dict, repr=False, description="Databases that sql tasks may use, by name"
    )
    secrets: Mapping[Name, Secret] = Field(
        default_factory=dict, repr=False, description="Where secrets are found, by name: env:VARIABLE or file:/path"
    )
    artifacts: Annotated[Path, BeforeValidator(_folder)] = Field(
        default=Path("headway-artifacts"), description="The folder where attached files are kept"
    )
    legacy: Legacy = Field(default_factory=Legacy, description="Which tasks the old trigger paths start")

    _sources: dict[_Path, str] = PrivateAttr(default_factory=dict)

    @field_validator("listen")
    @classmethod
    def _listens_on_postgres(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return value
        if not _is_postgres(value):
            raise ValueError("must be a PostgreSQL address: write it like postgresql://user@host/name")
        if not _is_postgres(info.data.get("database", value)):
            raise _together("is for PostgreSQL only, and database is a file: remove it")
        return value

    @field_validator("lease")
    @classmethod
    def _outlives_heartbeats(cls, value: float, info: ValidationInfo) -> float:
        heartbeat = info.data.get("heartbeat", 0.0)
        if value < round(3 * heartbeat, 6):
            short, beat = values.duration_text(value), values.duration_text(heartbeat)
            raise _together(f"must be at least 3 heartbeats: {short} is less than 3 × {beat}")
        return value


# --- where settings come from -------------------------------------------------------------------------------------

_FILE, _ENVIRONMENT, _FLAG = range(3)


@dataclass(frozen=True, slots=True, order=True)
class _Source:
    """Where a value was given. `says` is the setting that the label already names, so that it is not said twice."""

    rank: int
    line: int
    label: str
    says: str = ""


@dataclass(frozen=True, slots=True, order=True)
class _Problem:
    source: _Source
    setting: str
    text: str

    def __str__(self) -> str:
        named = "" if self.setting == self.source.says else f"{self.setting}: "
        return f"{self.source.label}: {named}{self.text}"


@dataclass(frozen=True, slots=True)
class _Given:
    path: _Path
    value: object
    source: _Source


def load(path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, object]) -> Settings:
    """The settings, or one BadInput that lists every problem, one per line (and in `facts["problems"]`).

    `path` None means `headway.toml` in the current folder, if there is one. Overrides are nested or dotted
    (`{"slots": 8, "concurrency.limit": "none"}`); one that is None was not given.
    """
    problems: list[_Problem] = []
    given: dict[_Path, _Given] = {}
    for layer in (_from_file(path, problems), _from_environment(environ, problems), _from_flags(overrides)):
        known = {item.path: item for item in layer if _is_known(item, problems)}
        _validate(known, problems, alone=True)  # a value that a later source overrides must be valid too
        given |= known
    settings = _validate(given, problems)
    if settings is None or problems:
        lines = [str(problem) for problem in sorted(set(problems))]
        raise BadInput("\n".join(lines), code="bad_settings", problems=lines)
    settings._sources.update({item.path: item.source.label for item in given.values()})
    return settings


def _validate(given: Mapping[_Path, _Given], problems: list[_Problem], *, alone: bool = False) -> Settings | None:
    try:
        return Settings.model_validate(_tree(given))
    except ValidationError as error:
        found = error.errors(include_input=False)
        problems += [_explain_error(one, given) for one in found if not (alone and one["type"] == _TOGETHER)]
        return None


def _tree(given: Mapping[_Path, _Given]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for item in given.values():
        branch = tree
        for part in item.path[:-1]:
            branch = branch.setdefault(part, {})
        branch[item.path[-1]] = item.value
    return tree


def _explain_error(details: ErrorDetails, given: Mapping[_Path, _Given]) -> _Problem:
    path = tuple(str(part) for part in details["loc"])
    if path not in given and path[-1] == "[key]":  # so pydantic says that the name is wrong, not the value
        path = path[:-1]
    # A value that nobody gave can only be wrong as a lease too short for the heartbeat that was given.
    blamed = given.get(path) or given[("heartbeat",)]
    hint = ' (or "none")' if ".".join(path) in _MAY_BE_NONE else ""
    return _Problem(blamed.source, _shown(path), _error_text(details) + hint)


def _error_text(details: ErrorDetails) -> str:
    facts = details.get("ctx", {})
    match details["type"]:
        case "value_error":
            return str(facts["error"])
        case "greater_than_equal":
            return f"must be at least {facts['ge']}"
        case "greater_than":
            return f"must be more than {facts['gt']:g}"
        case "less_than_equal":
            return f"must be at most {facts['le']}"
        case "literal_error":
            return f"must be {facts['expected']}"
        case "string_type":
            return "must be text"
        case "bool_type" | "bool_parsing":
            return "must be true or false"
    return details["msg"]


# --- the file -----------------------------------------------------------------------------------------------------


def _from_file(path: Path | None, problems: list[_Problem]) -> Iterator[_Given]:
    file = DEFAULT_FILE if path is None else path
    if path is None and not file.exists():
        return
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        problems.append(_Problem(_Source(_FILE, 0, str(file)), "", f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError as error:
        problems.append(_Problem(_Source(_FILE, 0, str(file)), "", f"is not UTF-8 text (byte {error.start})"))
    else:
        yield from _from_toml(file, text, problems)


def _from_toml(file: Path, text: str, problems: list[_Problem]) -> Iterator[_Given]:
    try:
        tree = tomllib.loads(text)
    except ValueError as error:
        problems.append(_toml_problem(str(error), file, text))
        return
    lines = _lines(text)
    for place, value in _flatten((), tree):
        line = next(lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in lines)
        yield _Given(place, value, _Source(_FILE, line, f"{file}:{line}"))


def _toml_problem(message: str, file: Path, text: str) -> _Problem:
    found = _LINE.search(message)
    line = int(found[1]) if found else text.count("\n") + 1
    return _Problem(_Source(_FILE, line, f"{file}:{line}"), "", f"is not TOML: {_LINE.sub('', message)}")


def _lines(text: str) -> dict[_Path, int]:
    """The line of every key of a valid TOML text: tomllib does not tell, but it can say where a statement ends."""
    lines: dict[_Path, int] = {}
    table: _Path = ()
    statement, start = "", 1
    for number, line in enumerate(text.split("\n"), 1):
        start = start if statement else number
        statement += line + "\n"
        try:
            parsed = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # a value that goes on in the next line
        if statement.lstrip().startswith("["):
            table = list(_keys(parsed))[-1]
            lines.setdefault(table, start)
            lines.setdefault(table[:1], start)
        else:
            lines.update({table + key: start for key in _keys(parsed)})
        statement = ""
    return lines


def _keys(tree: Mapping[str, Any]) -> Iterator[_Path]:
    for key, value in tree.items():
        yield (key,)
        inner = value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else value
        if isinstance(inner, dict):
            yield from ((key, *rest) for rest in _keys(inner))


# --- environment and flags ----------------------------------------------------------------------------------------


def _from_environment(environ: Mapping[str, str], problems: list[_Problem]) -> Iterator[_Given]:
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and not variable.startswith(NOT_SETTINGS):
            path = _named(variable.removeprefix(PREFIX).split("__"), "__")
            yield from _from_variable(variable, path, environ[variable], problems)


def _from_variable(variable: str, path: _Path, text: str, problems: list[_Problem]) -> Iterator[_Given]:
    source = _Source(_ENVIRONMENT, 0, variable, _shown(path))
    value: object = text
    if not text.strip() and _exists(path):
        problems.append(_Problem(source, source.says, "is empty: unset it, or give it a value"))
        return
    if ".".join(path) in _TABLES:
        try:
            value = values.from_json(text, field="")
        except BadInput as error:
            problems.append(_Problem(source, source.says, f"must be a JSON object: it {error.facts['problem']}"))
            return
    yield from (_Given(place, item, source) for place, item in _flatten(path, value))


def _from_flags(overrides: Mapping[str, object]) -> Iterator[_Given]:
    for name, value in overrides.items():
        for place, item in _flatten(_named(name.split("."), "."), value):
            if item is not None:
                label = "--" + "-".join(place).replace("_", "-")
                yield _Given(place, item, _Source(_FLAG, 0, label, _shown(place)))


def _named(parts: list[str], separator: str) -> _Path:
    """The path that a variable or flag means. Names inside a map are the user's own: case and separators are kept."""
    lower = [part.lower() for part in parts]
    for cut in range(1, len(parts)):
        if ".".join(lower[:cut]) in _MAPS:
            return (*lower[:cut], separator.join(parts[cut:]))
    return tuple(lower)


# --- what is known ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Setting:
    description: str
    is_map: bool


def _settings_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, _Setting | None]]:
    """Every setting by its dotted name; None stands for a section."""
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield prefix + name, None
            yield from _settings_of(kind, f"{prefix}{name}.")
        else:
            yield prefix + name, _Setting(field.description or "", is_map=typing.get_origin(kind) is Mapping)


_KNOWN = dict(_settings_of(Settings))
_SECTIONS = frozenset(name for name, setting in _KNOWN.items() if setting is None)
_MAPS = frozenset(name for name, setting in _KNOWN.items() if setting is not None and setting.is_map)
_TABLES = _SECTIONS | _MAPS


def _flatten(path: _Path, value: object) -> Iterator[tuple[_Path, object]]:
    """The single values in a table, as far as tables are ours; whatever else is there is left for validation."""
    name = ".".join(path)
    if not isinstance(value, Mapping) or (path and name not in _TABLES):
        yield path, value
    elif name in _MAPS:
        yield from (((*path, key), item) for key, item in value.items())
    else:
        for key, item in value.items():
            yield from _flatten((*path, key), item)


def _exists(path: _Path) -> bool:
    return ".".join(path) in _KNOWN or ".".join(path[:-1]) in _MAPS


def _is_known(item: _Given, problems: list[_Problem]) -> bool:
    if ".".join(item.path) in _TABLES:
        text = "must be a table of names and values"
    elif not _exists(item.path):
        text = f"unknown setting{_suggestion(item)}"
    else:
        return True
    problems.append(_Problem(item.source, _shown(item.path), text))
    return False


def _suggestion(item: _Given) -> str:
    inside = item.path[0] in _SECTIONS
    by_tail = {
        known.rpartition(".")[2]: known for known in _KNOWN if not inside or known.startswith(item.path[0] + ".")
    }
    names = by_tail if inside else by_tail | {known: known for known in _KNOWN}
    near = values.closest(item.path[-1] if inside else ".".join(item.path), names)
    return f", did you mean {_spelled(names[near], item.source.rank)}?" if near else ""


def _spelled(name: str, rank: int) -> str:
    if rank == _ENVIRONMENT:
        return PREFIX + name.upper().replace(".", "__")
    return name if rank == _FILE else "--" + name.replace(".", "-").replace("_", "-")


def _shown(path: _Path) -> str:
    return "".join(values.step(part) for part in path).removeprefix(".")


# --- showing them -------------------------------------------------------------------------------------------------


class Explained(NamedTuple):
    name: str
    value: str
    source: str
    description: str


def explain(settings: Settings) -> list[Explained]:
    """Every setting for `headway config show`: name, value as one would write it, source, description."""
    return [
        Explained(_shown(path), _value_text(value), settings._sources.get(path, "default"), setting.description)
        for name, setting in _KNOWN.items()
        if setting is not None
        for path, value in _values_of(settings, tuple(name.split(".")), is_map=setting.is_map)
    ]


def _values_of(settings: Settings, path: _Path, *, is_map: bool) -> Iterator[tuple[_Path, object]]:
    value: Any = settings
    for part in path:
        value = getattr(value, part)
    if is_map and value:
        yield from (((*path, key), item) for key, item in value.items())
    else:
        yield path, value


def _value_text(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float():
            return values.duration_text(value)
        case dict():
            return "{}"
    return masked(str(value))


def masked(text: str) -> str:
    """A text without the passwords of addresses in it. When in doubt too much is hidden, never too little."""
    return _PASSWORD.sub(r"\1***", _USER_PASSWORD.sub(r"\1:***@", text))

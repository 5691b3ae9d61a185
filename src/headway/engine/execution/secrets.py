"""Fills secrets into params, and masks them in all reports of the work.

`{"$secret": "NAME"}` becomes the secret, and the secret becomes `***`. The settings name the source of each secret
(`env:VARIABLE`, `file:/path`) and its owners; it is read for every job and never stored.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from headway.engine.execution.context import Sink
from headway.engine.execution.exhausted import is_exhausted
from headway.errors import BadInput
from headway.model.access.secrets import REFERENCE, OwnedSecret, not_given
from headway.model.access.tenants import DEFAULT
from headway.model.groups.group import SECRET
from headway.model.jobs.outcome import Completed, Failed, Outcome, Skipped
from headway.model.values.json import step

STARS = "***"
FILE_LIMIT = 64 * 1024

_LEAST_PIECE = 6  # shortest piece of a cut secret to mask: a shorter one reveals little and occurs in many words
_LEAST_LINE = 4
# Faster than `json.loads`, which checks seven options first. The params of every job pass here.
_decode = json.JSONDecoder().decode


class Unusable(BadInput):
    """A param names a secret or a connection that cannot be used; `why` is the reason alone."""

    def __init__(self, place: str, why: str, *, of: str = "") -> None:
        super().__init__(f"{place} {of}{why}", code="bad_params", field=place)
        self.why = why


def refuse(place: str, problem: str, *, of: str = "") -> NoReturn:
    raise Unusable(place, problem, of=of)


@dataclass(frozen=True, slots=True)
class Vault:
    """The settings for secrets (their sources and owners) and connections.

    `database` is Headway's own.
    """

    secrets: Mapping[str, OwnedSecret] = field(default_factory=dict)
    connections: Mapping[str, str] = field(default_factory=dict, repr=False)
    database: str = field(default="", repr=False)

    def reveal(self, text: str, *, task: str, tenant: str = DEFAULT) -> tuple[dict[str, Any], list[str]]:
        """Returns the params with the secrets of this task and tenant filled in, and the secrets."""
        params: dict[str, Any] = _decode(text)
        if REFERENCE not in text:
            return params, []
        drawer = _Drawer(self.secrets, tenant, task)
        filled = {name: drawer.filled(value, f"params{step(name)}") for name, value in params.items()}
        return filled, drawer.taken

    @property
    def variables(self) -> frozenset[str]:
        """The environment variables that secrets come from."""
        return frozenset(secret.variable for secret in self.secrets.values() if secret.variable is not None)

    def connection(self, name: object) -> str:
        """Returns the address of a connection by its name.

        It is a postgresql:// URL, or a file that is not Headway's own.
        """
        if not isinstance(name, str) or name not in self.connections:
            # The names of the others are not told: every tenant that is open for `sql` can ask.
            refuse("params.connection", "is not a connection in the settings")
        address = self.connections[name]
        if _same_file(address, self.database):
            refuse("params.connection", f"{name} is Headway's own database, which no job may use")
        return address


NO_VAULT = Vault()


class _Drawer:
    """The secrets that one task of one tenant takes."""

    def __init__(self, secrets: Mapping[str, OwnedSecret], tenant: str, task: str) -> None:
        self.secrets = secrets
        self.tenant = tenant
        self.task = task
        self.taken: list[str] = []

    def filled(self, value: Any, place: str) -> Any:
        if isinstance(value, dict):
            if value.keys() == {SECRET}:
                self.taken.append(self._secret(value[SECRET], place))
                return self.taken[-1]
            return {name: self.filled(item, place + step(name)) for name, item in value.items()}
        if isinstance(value, list):
            return [self.filled(item, f"{place}[{n}]") for n, item in enumerate(value)]
        return value

    def _secret(self, name: object, place: str) -> str:
        if not isinstance(name, str):
            refuse(place, f'must name a secret: {{"{SECRET}": "NAME"}}')
        secret = self.secrets.get(name)
        if secret is None or not secret.may(self.tenant, self.task):
            refuse(place, not_given(name, self.tenant, self.task))
        return read(secret, name, place)


def read(secret: OwnedSecret, name: str, place: str) -> str:
    """Reads a secret from its source; refuses one that is empty or missing."""
    kind, _, where = secret.source.partition(":")
    value = _from_file(where, name, place) if kind == "file" else os.environ.get(where, "")
    if not value:
        variable = f"the variable {where} of the worker's environment is empty or not set"
        problem = f"the file {where} is empty" if kind == "file" else variable
        refuse(place, problem, of=f"asks for the secret {name}, but ")
    return value


def _from_file(path: str, name: str, place: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_LIMIT + 1)
        text = data.decode()
    except OSError as error:
        if is_exhausted(error):
            raise  # a missing descriptor is not the job's fault
        refuse(place, f"the file {path} cannot be read: {error.strerror}", of=f"asks for the secret {name}, but ")
    except UnicodeDecodeError:
        refuse(place, f"asks for the secret {name}, but the file {path} is not UTF-8 text")
    if len(data) > FILE_LIMIT or "\x00" in text:
        refuse(place, f"asks for the secret {name}, but the file {path} is over {FILE_LIMIT >> 10} KiB or not text")
    return text.removesuffix("\n").removesuffix("\r")


def _same_file(address: str, database: str) -> bool:
    if "://" in address or "://" in database or not database:
        return False
    try:
        return os.path.samefile(address, database)
    except OSError:
        return os.path.realpath(address) == os.path.realpath(database)


def password_of(address: str) -> list[str]:
    """Returns the secrets in an address: all of it, and each password in it."""
    if "://" not in address:
        return []
    parts = urlsplit(address)
    given = [value for name, value in parse_qsl(parts.query) if "pass" in name.lower()]
    return [address, *given, *([parts.password, unquote(parts.password)] if parts.password else [])]


# --- masking ------------------------------------------------------------------------------------------------------


class Mask:
    """Replaces secrets in text by `***`.

    Finds a secret as it is, as JSON, Python and URLs spell it, line by line, and cut in two at the end of a text.
    """

    __slots__ = ("_exact", "_forms", "_pattern")

    def __init__(self, secrets: Iterable[str], before: Mask | None = None) -> None:
        self._exact: frozenset[str] = frozenset(secrets) | (before._exact if before is not None else frozenset())
        self._forms = sorted({form for secret in self._exact for form in _forms(secret)}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._forms)))

    def text(self, text: str) -> str:
        hidden = self._pattern.sub(STARS, text)
        for form in self._forms:
            # Long text is cut before it gets here, and the cut may go through a secret.
            if len(form) > _LEAST_PIECE and (form[:_LEAST_PIECE] in hidden or form[-_LEAST_PIECE:] in hidden):
                hidden = "\n".join(_without_pieces(line, form) for line in hidden.split("\n"))
        return hidden

    def json(self, text: str) -> str:
        """Masks secrets in JSON text; returns valid JSON.

        Changes only strings, and numbers equal to a secret.
        """
        hidden = self._value(json.loads(text))
        return json.dumps(hidden, ensure_ascii=False, separators=(",", ":"))

    def _value(self, value: Any) -> Any:
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(name): self._value(item) for name, item in value.items()}
            case list():
                return [self._value(item) for item in value]
            case int() | float() if json.dumps(value) in self._exact:
                return STARS
        return value

    def outcome(self, outcome: Outcome) -> Outcome:
        match outcome:
            case Completed():
                return replace(outcome, result=self.json(outcome.result))
            case Failed():
                return replace(outcome, error=self.text(outcome.error))
            case Skipped():
                return replace(outcome, reason=self.text(outcome.reason))
        return outcome


def _forms(secret: str) -> Iterator[str]:
    lines = secret.splitlines()
    for text in (secret, *(line for line in lines if len(lines) > 1 and len(line.strip()) >= _LEAST_LINE)):
        yield text
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        yield repr(text)[1:-1]
        yield quote(text, safe="")
        yield quote(text)
        yield quote_plus(text)


def _without_pieces(line: str, form: str) -> str:
    """Masks pieces of a secret at the start and at the end of a line."""
    head, rest = ("…", line[1:]) if line.startswith("…") else ("", line)
    body, tail = (rest[:-1], "…") if rest.endswith("…") else (rest, "")
    for size in range(min(len(form) - 1, len(body)), _LEAST_PIECE - 1, -1):
        if body.startswith(form[-size:]):
            body = STARS + body[size:]
            break
    for size in range(min(len(form) - 1, len(body)), _LEAST_PIECE - 1, -1):
        if body.endswith(form[:size]):
            body = body[:-size] + STARS
            break
    return head + body + tail


class MaskedSink:
    """Masks secrets in all reports before they reach the sink.

    The content of attached files is not masked.
    """

    def __init__(self, sink: Sink, mask: Mask) -> None:
        self.sink = sink
        self.mask = mask

    def progress(self, done: float, total: float | None, label: str) -> None:
        self.sink.progress(done, total, self.mask.text(label))

    def log(self, level: str, message: str, at: int) -> None:
        self.sink.log(level, self.mask.text(message), at)

    def spend(self, amounts: dict[str, float]) -> None:
        self.sink.spend({self.mask.text(meter): amount for meter, amount in amounts.items()})

    def checkpoint(self, text: str) -> None:
        self.sink.checkpoint(self.mask.json(text))

    def attach(self, path: str, name: str) -> None:
        self.sink.attach(path, self.mask.text(name))

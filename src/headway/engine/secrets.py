"""Secrets: `{"$secret": "NAME"}` in params becomes the secret when the work begins, and `***` in all it reports.

The values are read from the settings' places (`env:VARIABLE`, `file:/path`) each time, and are kept nowhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from headway.engine.context import Sink
from headway.errors import BadInput
from headway.model.outcome import Completed, Failed, Outcome, Skipped
from headway.model.values import closest, step

SECRET = "$secret"
STARS = "***"
FILE_LIMIT = 64 * 1024

_LEAST_PIECE = 6  # of a secret that was cut in two: a shorter piece tells little, and is part of many words
_LEAST_LINE = 4
_REFERENCE = f'"{SECRET}"'


def refuse(place: str, problem: str) -> NoReturn:
    raise BadInput(f"{place} {problem}", code="bad_params", field=place)


@dataclass(frozen=True, slots=True)
class Vault:
    """What the settings say of secrets (where they are found) and of connections; `database` is Headway's own."""

    secrets: Mapping[str, str] = field(default_factory=dict)
    connections: Mapping[str, str] = field(default_factory=dict, repr=False)
    database: str = field(default="", repr=False)

    def reveal(self, text: str) -> tuple[dict[str, Any], list[str]]:
        """The params of this JSON text with their secrets filled in, and the secrets."""
        params: dict[str, Any] = json.loads(text)
        if _REFERENCE not in text:
            return params, []
        found: list[str] = []
        filled = {name: self._filled(value, f"params{step(name)}", found) for name, value in params.items()}
        return filled, found

    def connection(self, name: object) -> str:
        """The address behind a name: a postgresql:// one, or a file that is not Headway's own."""
        if not isinstance(name, str) or name not in self.connections:
            known = ", ".join(sorted(self.connections)) or "none"
            refuse("params.connection", f"is not one of the settings' connections (there: {known}){_near(name, self)}")
        address = self.connections[name]
        if _same_file(address, self.database):
            refuse("params.connection", f"{name} is Headway's own database, which no job may touch")
        return address

    def _filled(self, value: Any, place: str, found: list[str]) -> Any:
        if isinstance(value, dict):
            if value.keys() == {SECRET}:
                found.append(self._secret(value[SECRET], place))
                return found[-1]
            return {name: self._filled(one, place + step(name), found) for name, one in value.items()}
        if isinstance(value, list):
            return [self._filled(one, f"{place}[{n}]", found) for n, one in enumerate(value)]
        return value

    def _secret(self, name: object, place: str) -> str:
        if not isinstance(name, str):
            refuse(place, f'must name a secret: {{"{SECRET}": "NAME"}}')
        if name not in self.secrets:
            near = closest(name, self.secrets)
            hint = f"did you mean {near}?" if near else "say where it is found in the worker's settings, under secrets"
            refuse(place, f"asks for the secret {name}, which this worker does not know: {hint}")
        kind, _, where = self.secrets[name].partition(":")
        value = _from_file(where, name, place) if kind == "file" else os.environ.get(where, "")
        if not value:
            source = f"the file {where}" if kind == "file" else f"the variable {where} of the worker's environment"
            refuse(place, f"asks for the secret {name}, but {source} is not set or empty")
        return value


NO_VAULT = Vault()


def _near(name: object, vault: Vault) -> str:
    near = closest(name, vault.connections) if isinstance(name, str) else None
    return f": did you mean {near}?" if near else ""


def _from_file(path: str, name: str, place: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_LIMIT + 1)
        text = data.decode()
    except OSError as error:
        refuse(place, f"asks for the secret {name}, but the file {path} cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        refuse(place, f"asks for the secret {name}, but the file {path} is not UTF-8 text")
    if len(data) > FILE_LIMIT or "\x00" in text:
        refuse(place, f"asks for the secret {name}, but the file {path} is over {FILE_LIMIT >> 10} KiB, or not text")
    return text.removesuffix("\n").removesuffix("\r")


def _same_file(address: str, database: str) -> bool:
    if "://" in address or "://" in database or not database:
        return False
    try:
        return os.path.samefile(address, database)
    except OSError:
        return os.path.realpath(address) == os.path.realpath(database)


def password_of(address: str) -> list[str]:
    """What of a connection's address is secret: all of it, and its passwords alone."""
    if "://" not in address:
        return []
    parts = urlsplit(address)
    given = [value for name, value in parse_qsl(parts.query) if "pass" in name.lower()]
    return [address, *given, *([parts.password, unquote(parts.password)] if parts.password else [])]


# --- masking ------------------------------------------------------------------------------------------------------


class Mask:
    """Hides secrets: as they are, as JSON, Python and addresses spell them, line by line, and cut in two at an end."""

    __slots__ = ("_exact", "_forms", "_pattern")

    def __init__(self, secrets: Iterable[str], before: Mask | None = None) -> None:
        self._exact: frozenset[str] = frozenset(secrets) | (before._exact if before is not None else frozenset())
        self._forms = sorted({form for secret in self._exact for form in _forms(secret)}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._forms)))

    def text(self, text: str) -> str:
        hidden = self._pattern.sub(STARS, text)
        for form in self._forms:
            # Long text is cut before it comes here, and the cut may go through a secret.
            if len(form) > _LEAST_PIECE and (form[:_LEAST_PIECE] in hidden or form[-_LEAST_PIECE:] in hidden):
                hidden = "\n".join(_without_pieces(line, form) for line in hidden.split("\n"))
        return hidden

    def json(self, text: str) -> str:
        """JSON in, JSON out: only what stands in texts, and numbers that are a secret, change."""
        hidden = self._value(json.loads(text))
        return json.dumps(hidden, ensure_ascii=False, separators=(",", ":"))

    def _value(self, value: Any) -> Any:
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(name): self._value(one) for name, one in value.items()}
            case list():
                return [self._value(one) for one in value]
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
    for one in (secret, *(line for line in lines if len(lines) > 1 and len(line.strip()) >= _LEAST_LINE)):
        yield one
        yield json.dumps(one)[1:-1]
        yield json.dumps(one, ensure_ascii=False)[1:-1]
        yield repr(one)[1:-1]
        yield quote(one, safe="")
        yield quote(one)
        yield quote_plus(one)


def _without_pieces(line: str, form: str) -> str:
    """A line without the end of a secret at its beginning, and without the beginning of one at its end."""
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
    """A sink that never gets to see a secret. What a file that is attached holds is the task's own affair."""

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

"""Checks of the address in the settings, and of the server that answers there."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headway.model.checks import Answer, broken, look, ok, skipped

if TYPE_CHECKING:
    from headway.config import Settings
    from headway.store.db import Database

ANSWER_SECONDS = 5.0
MOST_BYTES = 65_536
# Another check reports this warning. `/readyz` sends its code to unknown callers, its text to known ones.
_WALL = ("wall_off", "the wall between tenants")
_OTHERS = "if it belongs to another installation, choose another `port`"


def address(settings: Settings, database: Database) -> Answer:
    from headway.api.http.auth import is_loopback
    from headway.engine.client.tokens import any_token

    names = [settings.host, *(name.strip() for name in (settings.hosts or "").split(",") if name.strip())]
    open_to = [name for name in names if not is_loopback(name)]
    if not open_to:
        return ok(f"{settings.host} can be reached from this machine only")
    if any_token(database):
        return ok(f"{open_to[0]} can be reached from other machines, with a token")
    remedy = "create a token: `headway tokens create NAME --role admin --system`, or bind 127.0.0.1 without `hosts`"
    return broken(
        f"{open_to[0]} can be reached from other machines, and there is no token: `up` refuses to serve there", remedy
    )


def server(settings: Settings) -> Answer:
    """Asks the server at the address in the settings whether it is ready."""
    if settings.port == 0:
        return skipped("port 0: each start takes a free port")
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "localhost") else settings.host.strip("[]")
    where = f"{host} port {settings.port}"
    try:
        found = readiness(host, settings.port)
    except ConnectionError:
        return skipped(f"no server listens at {where}")
    except TimeoutError:
        remedy = f"check whether its process is stopped (`kill -CONT PID` continues it), or end it; {_OTHERS}"
        return look(f"the program that listens at {where} does not answer within {ANSWER_SECONDS:g} s", remedy)
    except socket.gaierror as error:
        return broken(f"`host` {settings.host} has no address: {error.strerror}", "correct `host` in the settings")
    except OSError as error:
        return look(f"{where} cannot be reached: {error.strerror}", "check that `host` is an address of this machine")
    if found is None:
        return look(f"another program answers at {where}", "choose another `port`: `up` cannot bind this one")
    return judged(found, where)


@dataclass(frozen=True, slots=True)
class Readiness:
    """The answer of a Headway server to `/readyz`."""

    ready: bool
    reasons: list[str]
    warnings: list[str]


def judged(found: Readiness, where: str) -> Answer:
    if not found.ready:
        text = f"Headway at {where} is not ready: {'; '.join(found.reasons)}"
        return broken(text, f"read its log and restart it; {_OTHERS}")
    if warnings := [warning for warning in found.warnings if not warning.startswith(_WALL)]:
        return look(f"Headway at {where} is ready, but: {'; '.join(warnings)}", f"see `/readyz` there; {_OTHERS}")
    return ok(f"Headway at {where} is ready (this installation, or another one on the same port)")


def readiness(host: str, port: int) -> Readiness | None:
    """Requests `/readyz`; returns None if the answer is not Headway's.

    Raises OSError if no server answers.
    """
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(host, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/readyz")
        return _read(json.loads(connection.getresponse().read(MOST_BYTES)))
    except (HTTPException, ValueError):
        return None
    finally:
        connection.close()


def _read(found: Any) -> Readiness | None:
    """Reads the JSON of `/readyz`; returns None if another program sent it."""
    if not isinstance(found, dict) or not isinstance(found.get("ready"), bool):
        return None
    lists = [found.get(name) for name in ("reasons", "warnings")]
    if not all(isinstance(texts, list) for texts in lists):
        return None
    reasons, warnings = ([str(text) for text in texts or []] for texts in lists)
    return Readiness(found["ready"], reasons, warnings)

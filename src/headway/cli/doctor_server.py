"""What `doctor` finds out about the address in the settings: who may reach it, and who answers there."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headway.model.diagnosis import Answer, broken, look, ok, skipped

if TYPE_CHECKING:
    from headway.config import Settings
    from headway.store.db import Database

ANSWER_SECONDS = 5.0
MOST_BYTES = 65_536
# The check of the wall says it already; strangers are told the code, others the text.
_WALL = ("wall_off", "the wall between tenants")
_OTHERS = "if it belongs to another installation, choose another `port`"


def address(settings: Settings, database: Database) -> Answer:
    from headway.api.access import is_loopback
    from headway.engine.tokens import any_token

    names = [settings.host, *(name.strip() for name in (settings.hosts or "").split(",") if name.strip())]
    open_to = [name for name in names if not is_loopback(name)]
    if not open_to:
        return ok(f"{settings.host} can be reached from this machine only")
    if any_token(database):
        return ok(f"{open_to[0]} can be reached from others, who need a token")
    remedy = "make a token: `headway tokens create NAME --role admin --system`, or bind 127.0.0.1 without `hosts`"
    return broken(
        f"{open_to[0]} can be reached from others, and there is no token: `up` refuses to serve there", remedy
    )


def server(settings: Settings) -> Answer:
    """Asks whoever answers where the settings say, whether it is ready."""
    if settings.port == 0:
        return skipped("it takes a free port at each start")
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "localhost") else settings.host.strip("[]")
    where = f"{host} port {settings.port}"
    try:
        found = readiness(host, settings.port)
    except ConnectionError:
        return skipped(f"nobody serves HTTP at {where}")
    except TimeoutError:
        remedy = f"see whether it stands still (`kill -CONT PID` continues it), or end it; {_OTHERS}"
        return look(f"what listens at {where} does not answer within {ANSWER_SECONDS:g} s", remedy)
    except socket.gaierror as error:
        return broken(f"`host` {settings.host} has no address: {error.strerror}", "correct `host` in the settings")
    except OSError as error:
        return look(f"{where} cannot be asked: {error.strerror}", "see that `host` is an address of this machine")
    if found is None:
        return look(f"another program answers at {where}", "choose another `port`: `up` cannot have this one")
    return judged(found, where)


@dataclass(frozen=True, slots=True)
class Readiness:
    """What a Headway says of itself."""

    ready: bool
    reasons: list[str]
    warnings: list[str]


def judged(found: Readiness, where: str) -> Answer:
    if not found.ready:
        text = f"Headway at {where} is not ready: {'; '.join(found.reasons)}"
        return broken(text, f"see its log, start it again; {_OTHERS}")
    if warnings := [one for one in found.warnings if not one.startswith(_WALL)]:
        return look(f"Headway at {where} is ready, but: {'; '.join(warnings)}", f"see `/readyz` there; {_OTHERS}")
    return ok(f"Headway at {where} is ready (this installation's, or another's with the same port)")


def readiness(host: str, port: int) -> Readiness | None:
    """What `/readyz` answers there; None if that is no answer of Headway's. Raises when nobody answers."""
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
    """Anything may come from a program that is not ours."""
    if not isinstance(found, dict) or not isinstance(found.get("ready"), bool):
        return None
    lists = [found.get(name) for name in ("reasons", "warnings")]
    if not all(isinstance(one, list) for one in lists):
        return None
    reasons, warnings = ([str(text) for text in one or []] for one in lists)
    return Readiness(found["ready"], reasons, warnings)

"""Explains and refuses webhook URLs that name a forbidden address."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from headway.errors import BadInput
from headway.model.webhooks.blocked_networks import forbidden


def not_there(host: str, address: str, why: str) -> str:
    """Returns why nothing is delivered to an address, and the setting that allows it."""
    who = f"{address} is {why}" if host == address else f"{host} is {address}, {why}"
    opened = forbidden(address, allow_private=True) is None
    hint = ": set `webhooks.allow_private` to allow it" if opened else ""
    return f"{who}, where nothing is delivered{hint}"


def refuse_closed(url: str, *, allow_private: bool | None, field: str = "url") -> None:
    """Refuses a URL whose host is a forbidden address.

    A host name is checked at each attempt instead, because its address may change. With `allow_private` None nothing is
    checked, because the sender's settings are not known here.
    """
    if allow_private is None:
        return
    host = urlsplit(url).hostname or ""
    for address in _written_out(host):
        if why := forbidden(address, allow_private=allow_private):
            raise BadInput(f"{field}: {not_there(host, address, why)}", field=field)


def _written_out(host: str) -> list[str]:
    """Returns the address of a numeric host in any notation (`127.1`, `0x7f.1`).

    A name is not resolved and gives none, except localhost.
    """
    if host.rstrip(".") == "localhost" or host.rstrip(".").endswith(".localhost"):
        return ["127.0.0.1"]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []
    return [str(address[0]) for *_, address in found]

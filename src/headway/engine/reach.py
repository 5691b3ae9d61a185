"""Where webhooks may go, in words: why an address is closed, and a refusal of one that is written out as such."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from headway.errors import BadInput
from headway.model.addresses import forbidden


def not_there(host: str, address: str, why: str) -> str:
    """Why nothing is delivered to an address, and which setting opens it, if one does."""
    who = f"{address} is {why}" if host == address else f"{host} is {address}, {why}"
    opened = forbidden(address, allow_private=True) is None
    hint = ": `webhooks.allow_private` in the settings opens these" if opened else ""
    return f"{who}, where nothing is delivered{hint}"


def refuse_closed(url: str, *, allow_private: bool | None, field: str = "url") -> None:
    """Refuses an address that no try would reach. What a name stands for may change: that is judged at each try.
    `allow_private` None: the settings of whoever sends are not known here."""
    if allow_private is None:
        return
    host = urlsplit(url).hostname or ""
    for address in _written_out(host):
        if why := forbidden(address, allow_private=allow_private):
            raise BadInput(f"{field}: {not_there(host, address, why)}", field=field)


def _written_out(host: str) -> list[str]:
    """The address that a host is, however it is written (`127.1`, `0x7f.1`); none for a name, which nobody is asked
    about, but for the one that is this machine everywhere."""
    if host.rstrip(".") == "localhost" or host.rstrip(".").endswith(".localhost"):
        return ["127.0.0.1"]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []
    return [str(address[0]) for *_, address in found]

"""Refuses misread PostgreSQL addresses before a connection is tried.

The driver's own message may quote a password.
"""

from __future__ import annotations

from collections.abc import Mapping

# The example has no password, because code that masks messages would take it, and half of the sentence, for a real one.
NOT_UNDERSTOOD = (
    "is not a valid PostgreSQL address: write it like postgresql://user@host:5432/name, check the names of "
    "options after a ?, and in a password, which follows user: write %20 for a space, %40 %3A %2F %3F %25 for @ : / ? %"
)


def misread(parts: Mapping[str, object]) -> bool:
    """Returns True if host or port can only be pieces of a password.

    That is a port that is no number, or an @ inside a host. A host may begin with an @, which names a socket without a
    file.
    """
    ports, hosts = str(parts.get("port") or "").split(","), str(parts.get("host") or "").split(",")
    return any(port and not port.isdecimal() for port in ports) or any("@" in host[1:] for host in hosts)

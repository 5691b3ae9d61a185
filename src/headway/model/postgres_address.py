"""Which addresses of PostgreSQL are refused before anybody connects: the driver's own words may hold a password."""

from __future__ import annotations

from collections.abc import Mapping

# With no password in its example: whoever masks messages would take it, and half of the sentence, for a real one.
NOT_UNDERSTOOD = (
    "is no address that PostgreSQL understands: write it like postgresql://user@host:5432/name, check the names of "
    "options after a ?, and in a password, which follows user: write %20 for a space, %40 %3A %2F %3F %25 for @ : / ? %"
)


def misread(parts: Mapping[str, object]) -> bool:
    """Whether the parts that were read can only be pieces of a password: a port that is no number, an @ in a host.

    A host may begin with an @: so sockets without a file are named.
    """
    ports, hosts = str(parts.get("port") or "").split(","), str(parts.get("host") or "").split(",")
    return any(port and not port.isdecimal() for port in ports) or any("@" in host[1:] for host in hosts)

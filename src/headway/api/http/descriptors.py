"""How many descriptors a process asks for, and how many connections they are enough for.

Apart from `connections`, because every process asks, and one that serves no HTTP does not import a server.
"""

from __future__ import annotations

import resource

MOST = 1_000
# Connections may use one descriptor in this many. The rest is for the worker, its children and the database.
DESCRIPTORS_PER_CONNECTION = 4
# Descriptors that this process asks for, if the hard limit allows them.
DESCRIPTORS = MOST * DESCRIPTORS_PER_CONNECTION
# A peer may hold one connection in this many. A reverse proxy is one peer.
PEERS = 2


def raise_descriptor_limit() -> None:
    """Raises the soft limit of descriptors of this process to what a full server needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections() -> int:
    """Returns how many connections the server may hold under the limit of descriptors."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST if soft == resource.RLIM_INFINITY else max(PEERS, min(MOST, soft // DESCRIPTORS_PER_CONNECTION))

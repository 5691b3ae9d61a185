"""The networks that a webhook may not reach, as an explicit table. Pure.

The flags of `ipaddress` miss shared addresses (100.64.0.0/10), NAT64 and more, and they change with the version of
Python.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Addresses of the own machine or network. `webhooks.allow_private` allows them.
PRIVATE = {
    "127.0.0.0/8": "a loopback address",
    "10.0.0.0/8": "a private address",
    "172.16.0.0/12": "a private address",
    "192.168.0.0/16": "a private address",
    "100.64.0.0/10": "an address of a carrier's own network",
    "::1/128": "a loopback address",
    "fc00::/7": "a private address",
}
# Always forbidden. 169.254.0.0/16 is where cloud providers serve credentials.
CLOSED = {
    "0.0.0.0/8": "an address of this machine",
    "169.254.0.0/16": "a link-local address",
    "192.0.0.0/24": "an address for protocols",
    "192.0.2.0/24": "an address for documentation",
    "192.31.196.0/24": "an address for protocols",
    "192.52.193.0/24": "an address for protocols",
    "192.88.99.0/24": "an address of 6to4 relays",
    "192.175.48.0/24": "an address for protocols",
    "198.18.0.0/15": "an address for benchmarks",
    "198.51.100.0/24": "an address for documentation",
    "203.0.113.0/24": "an address for documentation",
    "224.0.0.0/4": "a multicast address",
    "240.0.0.0/4": "a reserved address",
    "255.255.255.255/32": "the broadcast address",
    "::/128": "an address of this machine",
    "::/96": "an IPv4 address in IPv6 (compatible)",
    "::ffff:0:0/96": "an IPv4 address in IPv6 (mapped)",
    "::ffff:0:0:0/96": "an IPv4 address in IPv6 (translated)",
    "64:ff9b::/96": "an IPv4 address in IPv6 (NAT64)",
    "64:ff9b:1::/48": "an IPv4 address in IPv6 (NAT64)",
    "100::/64": "an address that leads nowhere",
    "100:0:0:1::/64": "an address that leads nowhere",
    "2001::/32": "an IPv4 address in IPv6 (Teredo)",
    "2001::/23": "an address for protocols",
    "2001:db8::/32": "an address for documentation",
    "2002::/16": "an IPv4 address in IPv6 (6to4)",
    "2620:4f:8000::/48": "an address for protocols",
    "3fff::/20": "an address for documentation",
    "5f00::/16": "an address for segment routing",
    "fe80::/10": "a link-local address",
    "fec0::/10": "a site-local address",
    "ff00::/8": "a multicast address",
}
# IANA allocates IPv6 addresses only from this part.
GIVEN_OUT = ipaddress.ip_network("2000::/3")


@lru_cache(maxsize=1)
def _table() -> list[tuple[Network, str, bool]]:
    """Returns all networks, the narrowest first, whose description is the most precise."""
    rows = [(ipaddress.ip_network(text), word, True) for text, word in PRIVATE.items()]
    rows += [(ipaddress.ip_network(text), word, False) for text, word in CLOSED.items()]
    return sorted(rows, key=lambda row: -row[0].prefixlen)


def forbidden(text: str, *, allow_private: bool = False) -> str | None:
    """Returns the reason why this address is forbidden; None if it is allowed."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "not an address"
    for network, word, private in _table():
        if address.version == network.version and address in network:
            return None if private and allow_private else word
    if address.version == 6 and address not in GIVEN_OUT:
        return "an address that is not allocated"
    return None

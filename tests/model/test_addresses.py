"""The table of addresses that webhooks may not go to: each row by an address in it, its edges, what is let through."""

from __future__ import annotations

import ipaddress

import pytest

from headway.model.webhooks.blocked_networks import CLOSED, PRIVATE, forbidden

PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0"]
PUBLIC += ["169.253.255.255", "169.255.0.0", "192.0.1.0", "198.17.255.255", "198.20.0.0", "223.255.255.255", "11.0.0.0"]
PUBLIC += ["2606:4700:4700::1111", "2a00:1450:4001::200e", "2001:200::1", "2003::1", "2400:cb00::1", "2620:fe::fe"]

FORBIDDEN = {
    "0.0.0.0": "this machine",
    "0.1.2.3": "this machine",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "10.0.0.1": "private",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.168.1.1": "private",
    "100.64.0.1": "carrier",
    "100.127.255.255": "carrier",
    "169.254.169.254": "link-local",
    "192.0.0.170": "protocols",
    "192.0.2.1": "documentation",
    "192.88.99.1": "6to4",
    "198.18.0.1": "benchmarks",
    "198.19.255.255": "benchmarks",
    "224.0.0.1": "multicast",
    "239.255.255.250": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "broadcast",
    "::": "this machine",
    "::1": "loopback",
    "::127.0.0.1": "compatible",
    "::ffff:127.0.0.1": "mapped",
    "::ffff:8.8.8.8": "mapped",
    "::ffff:0:127.0.0.1": "translated",
    "64:ff9b::7f00:1": "NAT64",
    "64:ff9b::8.8.8.8": "NAT64",
    "64:ff9b:1::1": "NAT64",
    "100::1": "nowhere",
    "2001::1": "Teredo",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2": "Teredo",
    "2001:10::1": "protocols",
    "2001:db8::1": "documentation",
    "2002:7f00:1::": "6to4",
    "3fff::1": "documentation",
    "5f00::1": "segment routing",
    "fc00::1": "private",
    "fd12:3456::1": "private",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "fec0::1": "site-local",
    "ff02::1": "multicast",
    "4000::1": "not allocated",
    "8000::1": "not allocated",
    "": "not an address",
    "localhost": "not an address",
    "127.1": "not an address",
}


@pytest.mark.parametrize("address", PUBLIC)
def test_what_everybody_can_reach_is_let_through(address: str) -> None:
    assert forbidden(address) is None
    assert forbidden(address, allow_private=True) is None


@pytest.mark.parametrize("address", FORBIDDEN)
def test_a_forbidden_action_says_why(address: str) -> None:
    assert FORBIDDEN[address] in (forbidden(address) or "it may")


@pytest.mark.parametrize("network", [*PRIVATE, *CLOSED])
def test_both_ends_of_every_network_are_forbidden(network: str) -> None:
    whole = ipaddress.ip_network(network)
    for address in (whole[0], whole[-1]):
        assert forbidden(str(address)) is not None


def test_allow_private_opens_ones_own_networks_and_nothing_else() -> None:
    for network in PRIVATE:
        assert forbidden(str(ipaddress.ip_network(network)[0]), allow_private=True) is None
    for network in CLOSED:
        assert forbidden(str(ipaddress.ip_network(network)[-1]), allow_private=True) is not None
    assert forbidden("169.254.169.254", allow_private=True) == "a link-local address"
    assert forbidden("::ffff:127.0.0.1", allow_private=True) is not None


def test_the_table_forbids_all_that_python_knows_to_be_special() -> None:
    """And more: the flags of `ipaddress` miss some."""
    for number in range(1 << 16):
        address = ipaddress.ip_address(number << 16)
        if not address.is_global and address.packed[:3] != b"\xc0\x00\x00":  # 192.0.0.9 and others are exceptions
            assert forbidden(str(address)) is not None, address
    missed = ipaddress.ip_address("64:ff9b::7f00:1")
    assert not missed.is_private
    assert forbidden(str(missed)) is not None

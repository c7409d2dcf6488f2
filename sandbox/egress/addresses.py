"""Which IP addresses are the public Internet's, and which a machine's or a network's own."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# From IANA's registries of special-purpose addresses; all of IPv6 beyond 2000::/3 is special, too.
_SPECIAL: dict[Network, str] = {
    ipaddress.ip_network(text): kind
    for text, kind in {
        "0.0.0.0/8": "means this machine",
        "10.0.0.0/8": "is private",
        "100.64.0.0/10": "is shared by customers of a provider",
        "127.0.0.0/8": "is loopback",
        "168.63.129.16/32": "is a cloud's own service",
        "169.254.0.0/16": "is link-local, where clouds hand out credentials",
        "172.16.0.0/12": "is private",
        "192.0.0.0/24": "is reserved for protocols",
        "192.0.2.0/24": "is for documentation",
        "192.88.99.0/24": "is a relay to IPv6",
        "192.168.0.0/16": "is private",
        "198.18.0.0/15": "is for benchmarks",
        "198.51.100.0/24": "is for documentation",
        "203.0.113.0/24": "is for documentation",
        "224.0.0.0/4": "is multicast",
        "240.0.0.0/4": "is reserved",
        "::/128": "means this machine",
        "::1/128": "is loopback",
        "::ffff:0:0/96": "is an IPv4 address in disguise",
        "64:ff9b::/96": "is an IPv4 address in disguise",
        "64:ff9b:1::/48": "is an IPv4 address in disguise",
        "2001::/23": "is reserved for protocols",
        "2001:db8::/32": "is for documentation",
        "2002::/16": "is an IPv4 address in disguise",
        "3fff::/20": "is for documentation",
        "fc00::/7": "is private",
        "fe80::/10": "is link-local",
        "ff00::/8": "is multicast",
    }.items()
}
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")


def why_not_public(address: Address) -> str | None:
    """Say what an address is, if it is not one of the public Internet.

    Args:
        address: The address.

    Returns:
        A predicate such as "is private", or None for a public one.
    """
    for network, kind in _SPECIAL.items():
        if address in network:
            return kind
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_6:
        return "is reserved"
    return None

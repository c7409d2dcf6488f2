"""Names and IP addresses of hosts: the form in which they are compared, and which addresses are public."""

from __future__ import annotations

import ipaddress
import re

import idna

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
MAX_NAME = 253
MAX_QUOTED = 100
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# Resolvers read a name whose last label is a number, also an octal or hexadecimal one, as an IPv4 address.
_NUMBER = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)")

# From IANA's registries of special-purpose addresses, because `is_global` differs between versions of Python.
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
        "::ffff:0:0/96": "contains an IPv4 address",
        "64:ff9b::/96": "contains an IPv4 address",
        "64:ff9b:1::/48": "contains an IPv4 address",
        "2001::/23": "is reserved for protocols",
        "2001:db8::/32": "is for documentation",
        "2002::/16": "contains an IPv4 address",
        "3fff::/20": "is for documentation",
        "fc00::/7": "is private",
        "fe80::/10": "is link-local",
        "ff00::/8": "is multicast",
    }.items()
}
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")


def normalise(host: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        return _address_6(host[1:-1])
    if not host.isascii():
        raise ValueError(f"{quoted(host)} is not ASCII: write the name in its xn-- form")
    name = host.lower().removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _address_4(name)
    if len(name) > MAX_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{quoted(host)} is not the name of a host")
    return name


def to_ascii(host: str) -> str:
    if host.isascii():
        return host
    try:
        return idna.encode(host, uts46=True).decode("ascii")
    except idna.IDNAError as error:
        raise ValueError(f"{quoted(host)} is not the name of a host: {error}") from None


def is_address(host: str) -> bool:
    return ":" in host or bool(_NUMBER.fullmatch(host.rpartition(".")[2]))


def why_not_public(address: Address) -> str | None:
    """Say what an address is that is not on the public Internet."""
    for network, kind in _SPECIAL.items():
        if address in network:
            return kind
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_6:
        return "is reserved"
    return None


def quoted(text: str) -> str:
    """Quote untrusted text for a message: ASCII without control characters, cut off after `MAX_QUOTED`."""
    escaped = ascii(text)
    return escaped if len(escaped) <= MAX_QUOTED else f"{escaped[:MAX_QUOTED]}..."


def with_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _address_4(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise ValueError(
            f"{quoted(text)} is not an IPv4 address in its usual form (four numbers from 0 to 255)"
        ) from None


def _address_6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise ValueError(f"{quoted(text)} is not an IPv6 address") from None
    if address.scope_id is not None:
        raise ValueError(f"{quoted(text)} has a zone, which has a meaning on one machine only")
    return str(address)

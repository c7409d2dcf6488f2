"""Names of hosts, brought into the one form in which they are compared."""

from __future__ import annotations

import ipaddress
import re

import idna

MOST_CHARACTERS = 253
SHOWN = 100
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# What resolvers take for an address written as one number, or with octal or hexadecimal parts.
_NUMBER = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)")


def normalise(host: str) -> str:
    """Bring a host into the form in which it is compared and looked up.

    Args:
        host: A name in ASCII, an IPv4 address, or an IPv6 address in brackets, as it stands in a URL.

    Returns:
        The name in small letters without a dot at its end; an address as `ipaddress` writes it, without brackets.

    Raises:
        ValueError: It is neither; the message says what is wrong with it.
    """
    if host.startswith("[") and host.endswith("]"):
        return _address_6(host[1:-1])
    if not host.isascii():
        raise ValueError(f"{shown(host)} is not ASCII: write the name in its xn-- form")
    name = host.lower().removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _address_4(name)
    if len(name) > MOST_CHARACTERS or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{shown(host)} is not the name of a host")
    return name


def to_ascii(host: str) -> str:
    """Write a name that a person has given in the form in which it travels.

    Args:
        host: A name, perhaps with letters beyond ASCII.

    Returns:
        The same in ASCII.

    Raises:
        ValueError: There is no such form.
    """
    if host.isascii():
        return host
    try:
        return idna.encode(host, uts46=True).decode("ascii")
    except idna.IDNAError as error:
        raise ValueError(f"{shown(host)} is not the name of a host: {error}") from None


def is_address(host: str) -> bool:
    """Whether a normalised host is an IP address."""
    return ":" in host or bool(_NUMBER.fullmatch(host.rpartition(".")[2]))


def shown(text: str) -> str:
    """Quote what came from elsewhere, so that it fits into a line of ASCII and does nothing there."""
    quoted = ascii(text)
    return quoted if len(quoted) <= SHOWN else f"{quoted[:SHOWN]}..."


def with_port(host: str, port: int) -> str:
    """A normalised host and a port as they stand in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _address_4(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise ValueError(f"{shown(text)} is no IPv4 address in its usual form (four numbers from 0 to 255)") from None


def _address_6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise ValueError(f"{shown(text)} is no IPv6 address") from None
    if address.scope_id is not None:
        raise ValueError(f"{shown(text)} has a zone, which means nothing outside of a machine")
    return str(address)

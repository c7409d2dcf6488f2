"""The allow-list: the entries of `allow_domains`, and their rules for a name, a port and an address.

"api.example.com"                        that host, ports 80 and 443
"api.example.com:8443"                   that host, that port
"*.example.org"                          every host below example.org, but not example.org itself
"203.0.113.7:443", "[2001:db8::7]:443"   an address, which is allowed as an address only, not by name
"git.corp.example in 10.2.0.0/16"        that host, whose addresses must all lie in that network; for hosts that are not public
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from codeact_sandbox.types.host_names import (
    Address,
    Network,
    is_address,
    normalise,
    quoted,
    to_ascii,
    why_not_public,
    with_port,
)

DEFAULT_PORTS = (80, 443)
_ENTRY = re.compile(r"(?P<host>\[[^\]\s]*\]|[^:\s\[\]/@]+)(?::(?P<port>[0-9]{1,5}))?(?:\s+in\s+(?P<network>\S+))?")


class Refused(Exception):
    """A connection that is not made; the message is a sentence for whoever wrote the code."""

    def __init__(self, sentence: str, status: int = 403) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class Entry:
    text: str  # as the user wrote it
    host: str  # normalised; without the `*.` of a wildcard
    wildcard: bool  # whether it stands for the hosts below `host`
    ports: tuple[int, ...]
    network: Network | None  # where all addresses must lie, or None for the public Internet

    def matches(self, host: str, port: int) -> bool:
        if port not in self.ports:
            return False
        return host.endswith(f".{self.host}") and not is_address(host) if self.wildcard else host == self.host


def parse_entry(text: str, option: str = "allow_domains") -> Entry:
    match = _ENTRY.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{option} has {quoted(text)}, which is not a host: write 'api.example.com', '*.example.org:443' or "
            "'[2001:db8::7]:443', without a scheme and a path"
        )
    wildcard = match["host"].startswith("*.")
    try:
        host = normalise(to_ascii(match["host"].removeprefix("*.")))
    except ValueError as error:
        raise ValueError(f"{option} has {quoted(text)}, which names no host: {error}") from None
    if wildcard and is_address(host):
        raise ValueError(f"{option} has {quoted(text)}: a wildcard stands before a name, not before an address")
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 0 < port < 65536:
        raise ValueError(f"{option} has {quoted(text)}: a port is a number from 1 to 65535")
    network = _parse_network(text, match["network"], option)
    if is_address(host):
        if network is not None:
            raise ValueError(f"{option} has {quoted(text)}: an address needs no network behind it")
        network = ipaddress.ip_network(host)
    return Entry(text.strip(), host, wildcard, DEFAULT_PORTS if port is None else (port,), network)


def _parse_network(text: str, network: str | None, option: str) -> Network | None:
    if network is None:
        return None
    try:
        return ipaddress.ip_network(network)
    except ValueError as error:
        raise ValueError(f"{option} has {quoted(text)}, which names no network behind `in`: {error}") from None


class Policy:
    def __init__(self, entries: Sequence[str], others: Iterable[Entry] = ()) -> None:
        if isinstance(entries, str):
            raise TypeError("allow_domains is one string: give a list of hosts such as ['api.example.com']")
        self._entries = (*(parse_entry(entry) for entry in entries), *others)

    def find(self, host: str, port: int) -> tuple[Entry, ...]:
        found = tuple(entry for entry in self._entries if entry.matches(host, port))
        if not found:
            raise Refused(f"{with_port(host, port)} is not in allow_domains; {_advice(with_port(host, port))}")
        return found

    def check_addresses(self, host: str, port: int, addresses: Iterable[Address]) -> None:
        """Raise `Refused` if one of the addresses of a host is neither public nor in a network that an entry names."""
        entries = self.find(host, port)
        networks = [entry.network for entry in entries if entry.network is not None]
        public = len(networks) < len(entries)
        for address in addresses:
            if any(address in network for network in networks):
                continue
            kind = why_not_public(address) if public else f"is not in {' or '.join(map(str, networks))}"
            if kind is not None:
                raise address_refused(host, port, address, kind)

    def names_network_of(self, host: str, port: int, address: Address) -> bool:
        """Whether an entry for the host names a network that holds the address, so that it may be this machine's own."""
        return any(entry.network is not None and address in entry.network for entry in self.find(host, port))


def address_refused(host: str, port: int, address: Address, kind: str) -> Refused:
    where = with_port(host, port)
    return Refused(f"{where} resolves to {address}, which {kind}; {_advice(f'{where} in {address}')}")


def _advice(entry: str) -> str:
    return f"to allow it, the user of this sandbox adds {entry!r} to allow_domains"

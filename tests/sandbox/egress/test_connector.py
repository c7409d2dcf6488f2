"""Connections to allowed hosts: the address that is used, and the message if there is none."""

import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from codeact_sandbox.egress import connector
from codeact_sandbox.egress.connector import Connector, in_order, is_own_address
from codeact_sandbox.types.allowed_domains import Policy, Refused
from tests.abuse.canaries import host_addresses
from tests.cases import case
from tests.sandbox.egress.servers import echo_request, hosts_in


def addresses(*texts: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    return [ipaddress.ip_address(text) for text in texts]


def test_ipv6_and_ipv4_addresses_alternate() -> None:
    assert in_order(addresses("2606::1", "2606::2", "2606::3", "1.1.1.1")) == addresses(
        "2606::1", "1.1.1.1", "2606::2", "2606::3"
    )
    assert in_order(addresses("1.1.1.1", "1.1.1.2", "2606::1")) == addresses("1.1.1.1", "2606::1", "1.1.1.2")
    assert in_order([]) == []


def test_this_machines_own_addresses_are_recognised() -> None:
    own = [ipaddress.ip_address(text) for text in host_addresses() if not text.startswith("127.")]
    assert own
    assert all(map(is_own_address, own))
    assert not any(map(is_own_address, addresses("1.1.1.1", "8.8.8.8", "192.0.2.1", "2606:4700:4700::1111")))


async def test_the_next_address_is_tried_after_a_failure(tmp_path: Path) -> None:
    with hosts_in(tmp_path) as hosts:
        server = hosts.serve(echo_request, "ok.example")
        hosts.addresses["ok.example"] = ["127.0.0.9", "127.0.0.1"]
        _, writer = await Connector(Policy([f"ok.example:{server.port} in 127.0.0.0/8"]), hosts.resolve).connect(
            "ok.example", server.port
        )
        assert writer.get_extra_info("peername") == ("127.0.0.1", server.port)
        writer.transport.abort()


def resolver(*answers: str) -> connector.Resolver:
    return lambda _: list(answers)


def unknown(name: str) -> Sequence[str]:
    raise socket.gaierror(-2, "Name or service not known")


def broken(name: str) -> Sequence[str]:
    raise RuntimeError("not today")


async def test_an_unreachable_host_is_refused_with_the_reason() -> None:
    cases = [
        (resolver(), 502, "ok.example:1 can't be reached: it has no address"),
        (resolver("x"), 502, "ok.example:1 can't be reached: its address was not found ('x' does not appear to be"),
        (unknown, 502, "ok.example:1 can't be reached: its address was not found (Name or service not known)"),
        (broken, 502, "ok.example:1 can't be reached: its address was not found (not today)"),
        (resolver("127.0.0.1"), 502, "ok.example:1 can't be reached: "),
    ]
    for resolve, status, message in cases:
        with case(resolve):
            with pytest.raises(Refused) as caught:
                await Connector(Policy(["ok.example:1 in 127.0.0.0/8"]), resolve).connect("ok.example", 1)
            assert caught.value.status == status
            assert message in str(caught.value)


async def test_a_host_that_accepts_no_connection_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full queue answers nothing, as a firewall does."""
    monkeypatch.setattr(connector, "CONNECT_TIMEOUT_S", 0.3)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        try:
            for sock in waiting:
                sock.setblocking(False)
                sock.connect_ex(("127.0.0.1", port))
            with pytest.raises(Refused, match=rf"^ok\.example:{port} can't be reached: no connection within 0\.3 s$"):
                await Connector(Policy([f"ok.example:{port} in 127.0.0.1"]), resolver("127.0.0.1")).connect(
                    "ok.example", port
                )
        finally:
            for sock in waiting:
                sock.close()

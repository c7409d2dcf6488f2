"""The allow-list's rules for names, ports and addresses, and the connections that are then made."""

import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from codeact_sandbox.network import connector
from codeact_sandbox.network.connector import Connector, is_own_address
from codeact_sandbox.types.allowed_domains import Policy, Refused, parse_entry
from codeact_sandbox.types.host_names import normalise
from tests.abuse.canaries import host_addresses
from tests.sandbox.network.servers import echo_request, hosts_in


class TestHosts:
    @pytest.mark.parametrize(
        ("written", "compared"),
        [
            ("api.example.com", "api.example.com"),
            ("API.Example.COM.", "api.example.com"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("_srv.example", "_srv.example"),
            ("localhost", "localhost"),
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1.", "192.0.2.1"),
            ("[2001:DB8:0:0::1]", "2001:db8::1"),
            ("[::ffff:10.0.0.1]", str(ipaddress.ip_address("::ffff:10.0.0.1"))),  # another text in Python 3.13
        ],
    )
    def test_hosts_are_normalised(self, written: Any, compared: Any) -> None:
        assert normalise(written) == compared

    @pytest.mark.parametrize(
        "host",
        [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a.b..",
            "evil\0.ok.example",
            "a b",
            "a\tb",
            "a\n.example",
            "a/b",
            "a%00b",
            "a@b",
            "-a.example",
            "a-.example",
            "a" * 64 + ".example",
            ".".join(["abcdefgh"] * 29),
            "*.example",
            "bücher.example",
            "\u2100.example",
            "a\u3002example",
            "ok.example:443",
            "2001:db8::1",
            "[::1",
            "::1]",
            "[::1%eth0]",
            "[fe80::1%25eth0]",
            "[]",
            "[::1].",
            "2130706433",
            "0x7f000001",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "127.1",
            "127.0.0.01",
            "1.2.3.4.5",
            "256.1.1.1",
            "ok.example.1",
            "0x",
            "1.0x",
        ],
    )
    def test_malformed_hosts_are_refused(self, host: Any) -> None:
        with pytest.raises(ValueError, match=r"not the name|not an IPv|not ASCII|has a zone"):
            normalise(host)


class TestEntries:
    @pytest.mark.parametrize(
        ("entry", "host", "port", "allowed"),
        [
            ("api.example.com", "api.example.com", 443, True),
            ("api.example.com", "api.example.com", 80, True),
            ("api.example.com", "api.example.com", 8443, False),
            ("api.example.com", "xapi.example.com", 443, False),
            ("api.example.com", "x.api.example.com", 443, False),
            ("api.example.com", "api.example.com.evil.example", 443, False),
            ("API.Example.com.", "api.example.com", 443, True),
            ("api.example.com:8443", "api.example.com", 8443, True),
            ("api.example.com:8443", "api.example.com", 443, False),
            ("*.example.org", "a.example.org", 443, True),
            ("*.example.org", "a.b.example.org", 80, True),
            ("*.example.org", "example.org", 443, False),
            ("*.example.org", "evilexample.org", 443, False),
            ("*.example.org:443", "a.example.org", 80, False),
            ("*.1", "1.1.1.1", 443, False),
            ("bücher.example", "xn--bcher-kva.example", 443, True),
            ("203.0.113.7:443", "203.0.113.7", 443, True),
            ("[2001:db8::7]:443", "2001:db8::7", 443, True),
            ("[2001:db8::7]", "2001:db8::7", 80, True),
            ("git.corp.example in 10.2.0.0/16", "git.corp.example", 443, True),
            ("git.corp.example:22 in 10.2.0.0/16", "git.corp.example", 443, False),
        ],
    )
    def test_entries_match_whole_labels_and_their_ports(self, entry: Any, host: Any, port: Any, allowed: Any) -> None:
        if entry == "*.1":
            with pytest.raises(ValueError, match="not an IPv4 address"):
                parse_entry(entry)
            return
        assert parse_entry(entry).matches(host, port) is allowed

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            ("https://api.example.com", "which is not a host: write 'api.example.com'"),
            ("api.example.com/path", "which is not a host"),
            ("user@api.example.com", "which is not a host"),
            ("2001:db8::7", "which is not a host"),
            ("", "which is not a host"),
            ("api.example.com:", "which is not a host"),
            ("*", "which names no host: '*' is not the name of a host"),
            ("a.*.example", "which names no host: 'a.*.example' is not the name of a host"),
            ("api.example.com:0", "a port is a number from 1 to 65535"),
            ("api.example.com:65536", "a port is a number from 1 to 65535"),
            ("*.10.0.0.1", "a wildcard stands before a name"),
            ("10.0.0.1 in 10.0.0.0/8", "an address needs no network behind it"),
            ("git.corp.example in 10.0.0.1/8", "10.0.0.1/8 has host bits set"),
            ("git.corp.example in corp", "'corp' does not appear to be an IPv4 or IPv6 network"),
            ("b\u00fc\u2100.example", "which names no host"),
        ],
    )
    def test_malformed_entries_say_how_to_write_them(self, entry: Any, message: Any) -> None:
        with pytest.raises(ValueError, match=r"^allow_domains has ") as caught:
            Policy(["ok.example", entry])
        assert message in str(caught.value)


def check(entries: list[str], host: str, *addresses: str, port: int = 443) -> str | None:
    """Return the reason for which it is refused, or None."""
    try:
        Policy(entries).check_addresses(host, port, [ipaddress.ip_address(text) for text in addresses])
    except Refused as refusal:
        return str(refusal)
    return None


class TestAddresses:
    @pytest.mark.parametrize(
        ("address", "kind"),
        [
            ("0.0.0.0", "means this machine"),
            ("10.1.2.3", "is private"),
            ("100.64.0.1", "is shared by customers of a provider"),
            ("100.100.100.200", "is shared by customers of a provider"),
            ("127.0.0.1", "is loopback"),
            ("127.9.9.9", "is loopback"),
            ("168.63.129.16", "is a cloud's own service"),
            ("169.254.169.254", "is link-local, where clouds hand out credentials"),
            ("172.16.0.1", "is private"),
            ("172.31.255.255", "is private"),
            ("192.0.0.192", "is reserved for protocols"),
            ("192.168.1.1", "is private"),
            ("198.18.0.1", "is for benchmarks"),
            ("203.0.113.5", "is for documentation"),
            ("224.0.0.1", "is multicast"),
            ("255.255.255.255", "is reserved"),
            ("::", "means this machine"),
            ("::1", "is loopback"),
            ("::7f00:1", "is reserved"),
            ("::ffff:127.0.0.1", "contains an IPv4 address"),
            ("::ffff:8.8.8.8", "contains an IPv4 address"),
            ("64:ff9b::a9fe:a9fe", "contains an IPv4 address"),
            ("64:ff9b:1::1", "contains an IPv4 address"),
            ("2001::1", "is reserved for protocols"),
            ("2001:db8::1", "is for documentation"),
            ("2002:7f00:1::", "contains an IPv4 address"),
            ("fd00:ec2::254", "is private"),
            ("fe80::1", "is link-local"),
            ("fec0::1", "is reserved"),
            ("ff02::1", "is multicast"),
            ("100::1", "is reserved"),
            ("5f00::1", "is reserved"),
        ],
    )
    def test_addresses_that_are_not_public_are_refused(self, address: Any, kind: Any) -> None:
        where = f"ok.example:443 in {ipaddress.ip_address(address)}"
        assert check(["ok.example"], "ok.example", address) == (
            f"ok.example:443 resolves to {ipaddress.ip_address(address)}, which {kind}; "
            f"to allow it, the user of this sandbox adds {where!r} to allow_domains"
        )

    @pytest.mark.parametrize(
        "address", ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "2a00:1450:4001::1"]
    )
    def test_addresses_that_are_public_are_allowed(self, address: Any) -> None:
        assert check(["ok.example"], "ok.example", address) is None

    def test_all_addresses_must_be_in_the_network_of_the_entry(self) -> None:
        entries = ["git.corp.example in 10.2.0.0/16"]
        assert check(entries, "git.corp.example", "10.2.3.4", "10.2.9.9") is None
        message = check(entries, "git.corp.example", "10.2.3.4", "1.1.1.1")
        assert message.startswith("git.corp.example:443 resolves to 1.1.1.1, which is not in 10.2.0.0/16; ")

    def test_address_on_the_list_may_be_private(self) -> None:
        assert check(["127.0.0.1:8080"], "127.0.0.1", "127.0.0.1", port=8080) is None
        assert check(["[::1]:8080"], "::1", "::1", port=8080) is None

    def test_host_that_is_not_on_the_list_is_refused(self) -> None:
        assert check(["ok.example"], "evil.example", "1.1.1.1") == (
            "evil.example:443 is not in allow_domains; "
            "to allow it, the user of this sandbox adds 'evil.example:443' to allow_domains"
        )
        assert (check(["ok.example"], "::1", "::1") or "").startswith("[::1]:443 is not in allow_domains; ")


def addresses(*texts: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    return [ipaddress.ip_address(text) for text in texts]


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


@pytest.mark.parametrize(
    ("resolve", "status", "message"),
    [
        (resolver(), 502, "ok.example:1 can't be reached: it has no address"),
        (resolver("x"), 502, "ok.example:1 can't be reached: its address was not found ('x' does not appear to be"),
        (unknown, 502, "ok.example:1 can't be reached: its address was not found (Name or service not known)"),
        (broken, 502, "ok.example:1 can't be reached: its address was not found (not today)"),
        (resolver("127.0.0.1"), 502, "ok.example:1 can't be reached: "),
    ],
)
async def test_an_unreachable_host_is_refused_with_the_reason(resolve: Any, status: Any, message: Any) -> None:
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

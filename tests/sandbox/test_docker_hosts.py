"""Engines of `hosts`: what their models accept, what they show, and files of them. No engine is needed."""

import gc
import json
import pickle
import re
import select
import socket
import struct
import warnings
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.cli.sandbox_choice import SandboxChoice
from codeact_sandbox import AsyncSandbox, DockerHost, DockerOptions, DockerTLS, SandboxPool
from codeact_sandbox.backend_selection import choose_backend
from codeact_sandbox.backends.docker.engine import tls_context
from codeact_sandbox.types.docker_hosts import parse_hosts
from tests.cases import case

TLS = DockerTLS(ca="/c/ca.pem", cert="/c/cert.pem", key="/c/key.pem")


def test_addresses_and_hosts_are_accepted_together() -> None:
    options = DockerOptions(hosts=["unix:///run/a", DockerHost(url="tcp://b:2376", tls=TLS, capacity=2)])
    assert options.engines == (DockerHost(url="unix:///run/a"), DockerHost(url="tcp://b:2376", tls=TLS, capacity=2))
    assert [host.label for host in options.engines] == ["unix:///run/a", "tcp://b:2376"]


def test_a_dumped_config_has_paths_only_and_is_loaded_again() -> None:
    options = DockerOptions(hosts=["unix:///run/a", DockerHost(url="tcp://b:2376", tls=TLS, capacity=9, name="b")])
    dumped = options.model_dump_json()
    assert json.loads(dumped)["hosts"] == [
        {"url": "unix:///run/a"},
        {
            "url": "tcp://b:2376",
            "tls": {"ca": "/c/ca.pem", "cert": "/c/cert.pem", "key": "/c/key.pem"},
            "capacity": 9,
            "name": "b",
        },
    ]
    assert DockerOptions.model_validate_json(dumped) == options
    assert pickle.loads(pickle.dumps(options)) == options


def test_tls_can_be_a_folder(tmp_path: Path) -> None:
    expected = DockerTLS(ca=tmp_path / "ca.pem", cert=tmp_path / "cert.pem", key=tmp_path / "key.pem")
    assert DockerHost(url="tcp://a:1", tls=tmp_path).tls == expected
    assert DockerHost(url="tcp://a:1", tls=str(tmp_path)).tls == expected


def test_a_password_in_an_address_is_not_shown() -> None:
    host = DockerHost(url="ssh://user:s3cr3t@machine")
    assert host.label == "ssh://machine"
    assert "s3cr3t" not in f"{host!r} {DockerOptions(hosts=[host])!r}"


def test_a_wrong_type_is_refused() -> None:
    for hosts, complaint in [
        ("tcp://a:1", "hosts must be a list of addresses or DockerHost(...)"),
        ({"url": "tcp://a:1"}, "hosts must be a list of addresses or DockerHost(...)"),
        ([7], "an engine of hosts is an address or DockerHost(...), not int"),
    ]:
        with case(hosts, complaint), pytest.raises(TypeError, match=f"^{re.escape(complaint)}"):
            parse_hosts(hosts)


ADDRESS = "the address of a Docker engine must look like unix:///var/run/docker.sock or tcp://host:2376"
WRONG_ENGINES: list[tuple[Any, str]] = [
    ([""], ADDRESS),
    (["a:2376"], ADDRESS),
    (["ftp://a:1"], ADDRESS),
    (["unix://"], ADDRESS),
    (["tcp://a:1\n"], ADDRESS),
    (["tcp://a:99999"], ADDRESS),
    (["tcp://a"], "the address of the Docker engine at a has no port: give tcp://host:2376"),
    (["tcp://a:1", "tcp://b:1", "tcp://a:1"], "two engines of hosts have the name 'tcp://a:1': each needs its own"),
    (
        [DockerHost(url="tcp://a:1", name="x"), DockerHost(url="tcp://a:1", name="y")],
        "two engines of hosts have the address 'tcp://a:1': each needs its own",
    ),
    ([{"url": "tcp://a:1", "capacity": 0}], "hosts: capacity: Input should be greater than or equal to 1"),
    ([{"url": "tcp://a:1", "colour": "red"}], "hosts: colour: Extra inputs are not permitted"),
    ([{"name": "a"}], "hosts: url: Field required"),
    ([{"url": "tcp://a:1", "name": "a\x1b[31m"}], "the name of an engine must be printable"),
    (
        [{"url": "unix:///a", "tls": {"ca": "/ca"}}],
        "the engine unix:///a has TLS files, and only tcp:// addresses have TLS",
    ),
    (
        [{"url": "tcp://a:1", "tls": {"cert": "/cert"}}],
        "the TLS files of an engine are cert and key together, with or without ca",
    ),
]


def test_engines_that_can_not_be_right_are_refused() -> None:
    for hosts, complaint in WRONG_ENGINES:
        with pytest.raises(ValueError, match=f"^{re.escape(complaint)}$"):
            parse_hosts(hosts)


def test_options_that_do_not_go_with_hosts_are_refused() -> None:
    for options, complaint in [
        ({"docker_host": "tcp://a:1"}, "docker_host= is one engine and hosts= are several: give one of the two"),
        ({"bind_dir": "/tmp"}, "bind_dir= is a folder of one engine's machine: with several hosts= use work_dir="),
    ]:
        with case(options, complaint), pytest.raises(ValueError, match=f"^{re.escape(complaint)}$"):
            AsyncSandbox(hosts=["unix:///a", "unix:///b"], **options)


@pytest.mark.parametrize("options", [{"hosts": ["unix:///nowhere"]}, {"docker_host": "unix:///nowhere"}])
def test_engines_mean_docker_without_looking_for_one_on_this_machine(options, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/either")
    assert choose_backend(options) == "docker"


def test_a_pool_of_other_engines_is_refused() -> None:
    pool = SandboxPool(1, hosts=["unix:///a"])
    with pytest.raises(ValueError, match="differ in hosts"):
        AsyncSandbox(pool=pool, hosts=["unix:///b"])
    assert AsyncSandbox(pool=pool)._managed.options.hosts == (DockerHost(url="unix:///a"),)


def test_engines_of_the_command_line_are_addresses_and_json() -> None:
    given = ["hosts=unix:///run/a", 'hosts=["unix:///run/b", {"url": "tcp://b:1", "tls": "/b", "capacity": 2}]']
    assert parse_hosts(SandboxChoice(others=given).options()["hosts"]) == (
        DockerHost(url="unix:///run/a"),
        DockerHost(url="unix:///run/b"),
        DockerHost(url="tcp://b:1", tls="/b", capacity=2),
    )


def test_a_tls_socket_is_closed_if_its_connection_is_reset_before_the_handshake() -> None:
    """As happens to those that a killed engine had not accepted yet; Python's own socket stays open."""
    context = tls_context()
    gc.collect()
    with warnings.catch_warnings(record=True) as found, socket.create_server(("127.0.0.1", 0)) as server:
        warnings.simplefilter("always")
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        assert select.select([client], [], [], 30)[0]
        with pytest.raises(ConnectionResetError):
            context.wrap_socket(client, server_hostname="engine")
        gc.collect()
    assert not [str(warning.message) for warning in found]

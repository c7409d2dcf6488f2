"""What `leaves_nothing` counts as left by a test, and what not."""

import os
import socket

import pytest

from tests.sandbox.conftest import leftovers, present


@pytest.mark.usefixtures("docker_engine")
@pytest.mark.asyncio(loop_scope="module")
async def test_the_event_loop_of_the_module_is_not_left_by_its_first_test() -> None:
    """Its three descriptors stay open until the last test of the module."""


@pytest.mark.usefixtures("docker_engine")
class TestDescriptors:
    def test_leftover_descriptors_are_named(self) -> None:
        before = present()
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
            left = leftovers(before)
            assert left.keys() == {"descriptors"}
            assert {each.partition(" (")[2] for each in left["descriptors"]} == {
                f"AF_INET SOCK_STREAM, at {server.getsockname()})",
                f"AF_INET SOCK_STREAM, from {client.getsockname()} to {server.getsockname()})",
            }
        assert leftovers(before) == {}

    def test_descriptor_that_replaces_another_is_not_a_leftover(self) -> None:
        first = os.open(os.devnull, os.O_RDONLY)
        before = present()
        second = os.open(os.path.sep, os.O_RDONLY)
        assert leftovers(before) == {"descriptors": {f"{second} -> /"}}
        os.close(first)
        assert leftovers(before) == {}
        os.close(second)

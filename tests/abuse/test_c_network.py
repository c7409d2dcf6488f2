"""C. Network: there is none."""

from .subject import Subject


async def test_43_only_the_loopback_interface_exists(subject: Subject) -> None:
    assert await subject.out("import socket; print(sorted(name for _, name in socket.if_nameindex()))") == "['lo']\n"

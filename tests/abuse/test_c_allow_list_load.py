"""C, case 45. Network with an allow-list under load: floods, silence, half-closed and endless connections, and their ends."""

from tests.sandbox.egress.servers import Hosts

from .faults import eventually
from .reaching import ASK, SECOND, Listener, allowed, out, start
from .subject import Subject, each_engine


# Case 45.
@each_engine
async def test_connections_end_with_their_process(subject: Subject, hosts: Hosts) -> None:
    server = hosts.serve(Listener(b"heard"), "ok.example")
    await start(subject, allowed(server))
    code = f"""
    kept = tunnel("ok.example", {server.port})
    kept.sendall(hello("ok.example"))
    print(kept.recv(5))
    """
    assert await out(subject, SECOND + code) == ["b'heard'"]
    if subject.session:
        assert server.open == 1
        await out(subject, "kept.close()")
    await eventually(lambda: server.open == 0)
    killed = f"""
    import signal
    kept = tunnel("ok.example", {server.port})
    kept.sendall(hello("ok.example"))
    kept.shutdown(socket.SHUT_WR)
    if os.fork() == 0:
        os.setsid()
    while True:
        signal.pause()
    """
    result = await subject.run(ASK + SECOND + killed, timeout=4)
    assert result.outcome == "timeout"
    await eventually(lambda: server.open == 0)
    assert server.connections == 2

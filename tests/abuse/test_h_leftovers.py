"""H 6: processes that an earlier block of a session has left read and answer on every descriptor that they inherited."""

from typing import Any

import pytest

from tests.sandbox.sandboxes import FORGE
from tests.sandbox.tools.host_tools import Tool

from .subject import in_sessions

BLOCKS = 5
STOLEN = "/tmp/stolen"

# What the leftover process does: it reads from each socket, also from those that come with what it has read, and answers
# each request that it has seen. `FORK` says how it comes to be.
LEFTOVER = f"""
    {FORGE}
    import array, select, time
    forged = {{"exit_code": 0, "value": "'forged'", "error": None, "pid": os.getpid()}}
    arguments = json.dumps({{"name": "note", "arguments": {{"text": "forged"}}}}).encode()
    call = struct.pack("!cII", b"T", 7, len(arguments)) + arguments

    def sockets():
        found = []
        for fd in range(3, 64):
            try:
                stat.S_ISSOCK(os.fstat(fd).st_mode) and found.append(fd)
            except OSError: pass
        return found

    def take_all():
        held, seen, until = sockets(), set(range(64)), time.monotonic() + 20
        while time.monotonic() < until:
            for fd in select.select(held, [], [], 0.01)[0]:
                sock = socket.socket(fileno=os.dup(fd))
                try: data, ancillary, *_ = sock.recvmsg(1 << 20, 1000, socket.MSG_DONTWAIT)
                except OSError: data, ancillary = b"", ()
                for _, _, payload in ancillary:
                    more = array.array("i"); more.frombytes(payload); held += more
                if not data:
                    held.remove(fd)
                else:
                    open({STOLEN!r}, "ab").write(data)
                    seen.add(struct.unpack("!cI", data[:5])[1] if len(data) > 8 else 0)
            for fd in held:
                for ident in seen:
                    for kind in (b"D", b"C", b"G"):
                        try: os.write(fd, frame(kind, ident, forged))
                        except OSError: pass
                try: os.write(fd, call)
                except OSError: pass
        os._exit(0)
"""
FORKS = {
    "fork": "if os.fork() == 0: os.setsid(); take_all()",
    "forks after the block": (
        "if os.fork() == 0:\n    os.setsid(); time.sleep(0.3)\n    for _ in range(3): os.fork()\n    take_all()"
    ),
    # Where the interpreter is to connect after the block, it does so now, and leaves that to another process.
    "connected ahead": (
        "name = next(line.split()[-1] for line in open('/proc/net/unix') if '@codeact-' in line)\n"
        "held = [socket.socket(socket.AF_UNIX) for _ in range(5)]\n"
        "for sock in held: sock.connect(chr(0) + name[1:])\n"
        "if os.fork() == 0: os.setsid(); take_all()\n"
        "time.sleep(0.05)\n"
        "more = [socket.socket(socket.AF_UNIX) for _ in range(5)]\n"
        "for sock in more: sock.connect(chr(0) + name[1:])\n"
        "if os.fork() == 0: os.setsid(); take_all()"
    ),
    "connects": (
        "name = next(line.split()[-1] for line in open('/proc/net/unix') if '@codeact-' in line)\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid(); until = time.monotonic() + 20\n"
        "        while time.monotonic() < until:\n"
        "            try: sock = socket.socket(socket.AF_UNIX); sock.connect(chr(0) + name[1:])\n"
        "            except OSError: pass\n"
        "        os._exit(0)"
    ),
    "clone": (
        "import ctypes, platform\n"
        "if ctypes.PyDLL(None).syscall({'x86_64': 56, 'aarch64': 220}[platform.machine()], 17, 0, 0, 0, 0) == 0: take_all()"
    ),
}


def note_tool(noted: list[str]) -> Any:
    """A host tool that remembers what it was called with."""

    async def note(text: str) -> str:
        """Note it."""
        noted.append(text)
        return "noted"

    return Tool(note)


# Case H6.
@in_sessions
@pytest.mark.parametrize("how", FORKS)
@pytest.mark.parametrize("checkpoint", [True, False])
async def test_a_leftover_process_sends_no_results_for_later_blocks(subject, how, checkpoint):
    """It answered most of the later blocks and called a host tool in the name of one."""
    noted: list[str] = []
    await subject.start({"tools": [note_tool(noted)], "checkpoint": checkpoint})
    fork = FORKS[how].replace("\n", "\n    ")
    assert (await subject.run(f"{LEFTOVER}\n    {fork}")).outcome == "ok"
    for number in range(BLOCKS):
        result = await subject.run(f"import time; time.sleep(0.1); note('true {number}')\n{number} * 11")
        assert (result.outcome, result.state, result.value_repr) == ("ok", "kept", str(number * 11))
    assert noted == [f"true {number}" for number in range(BLOCKS)]
    # Nor has it read what later blocks were, or what the host answered them.
    seen = await subject.out(f"import os; print(os.path.exists({STOLEN!r}) and open({STOLEN!r}, 'rb').read())")
    assert "true" not in seen, seen

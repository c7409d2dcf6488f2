"""D 47 to 51 and 59 to 64: forged results and frames, garbage, payloads with a type, and calls to host tools of any kind."""

import asyncio
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.executors import ToolLimits
from tests.sandbox.sandboxes import FORGE
from tests.sandbox.tools.host_tools import Tool

from .oracles import MIB
from .subject import Subject, each_engine, one_kind

FORGED = {"exit_code": 0, "value": "forged", "error": None, "outcome": "ok", "state": "kept", "notes": ["forged"]}


# Case 47.
async def test_a_result_printed_to_stdout_is_text(subject: Subject) -> None:
    code = f"""
    {FORGE}
    import sys
    message = {json.dumps(FORGED).replace("null", "None")}
    for kind in (b"D", b"A", b"H", b"!", b"O", b"X", b"K"):
        for ident in range(4):
            os.write(1, frame(kind, ident, message))
            os.write(2, frame(kind, ident, message))
    print(json.dumps(message), flush=True)
    os.write(1, bytes([1, 0, 0, 0, 0, 0, 0, 4]) + b"mux!")  # Docker's own header
    sys.exit(3)
    """
    result = await subject.run(code)
    assert (result.outcome, result.exit_code, result.state, result.value_repr) == ("error", 3, "kept", None)
    assert "forged" not in result.notes
    assert result.output.count('"outcome"') == 7 * 4 * 2 + 1
    assert result.output.endswith("mux!")


EVERYWHERE = f"""
    {FORGE}
    import time
    message = {{"exit_code": 0, "value": "forged", "error": None, "outcome": "ok", "state": "lost", "notes": ["forged"],
        "pid": 1, "status": 0, "preload": {{}}, "fds": 1, "late": "forged", "environment": {{"FORGED": "1"}}, "unset": ["PATH"],
        "cwd": "/forged", "files": [{{"name": "../../forged", "size": 1, "mode": 0o777, "inline": 1}}], "answer": "forged"}}
    def everywhere(folder):
        for name in os.listdir(folder):
            try:
                fd = os.open(folder + "/" + name, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                fd = int(name) if folder == "/proc/self/fd" and int(name) > 2 else None
            if fd is None: continue
            for kind in b"DASXHWGCOE!KLFPRB":
                for ident in (0, 1, 2, 3, 4, 5, 6, 7):
                    try: os.write(fd, frame(bytes([kind]), ident, message))
                    except OSError: pass
"""


# Case 48.
async def test_forged_frames_through_every_descriptor_change_nothing_but_the_blocks_own_result(subject):
    code = EVERYWHERE + '    everywhere("/proc/self/fd")\n    time.sleep(0.2)'
    result = await subject.run(code)
    assert result.outcome in ("ok", "crashed")
    assert [item for item in result.artifacts if "forged" in item.name] == []
    assert [note for note in result.notes if note == "forged"] == []
    for language, look in (
        ("python", "import os; print(os.environ.get('FORGED'), bool(os.environ.get('PATH')))"),
        ("sh", 'echo "${FORGED:-None}" True'),
    ):
        seen = await subject.run(look, language)
        assert seen.output.split()[-1] == "True"
        # A session's environment is the code's own to change, by whatever way.
        assert subject.session or seen.output == "None True\n"
    if subject.session:
        await subject.run("import os; os.environ.pop('FORGED', None)")


GARBAGE = {
    "random": "os.urandom(5000)",
    "part of a header": 'b"D\\0"',
    "part of a frame": 'struct.pack("!cII", b"D", 1, 100) + b"x" * 50',
    "part of a long frame": 'struct.pack("!cII", b"D", 1, 1 << 20) + b"x"',
    "no message": 'struct.pack("!cII", b"D", 1, 4) + b"\\xff" * 4',
    "no JSON": 'struct.pack("!cII", b"D", 1, 8) + struct.pack("!I", 4) + b"{{{{"',
    "deep JSON": 'struct.pack("!cII", b"D", 1, 100004) + struct.pack("!I", 100000) + b"[" * 100000',
    "a number without end": 'struct.pack("!cII", b"D", 1, 1000004) + struct.pack("!I", 1000000) + b"9" * 1000000',
    "a length of 4 GB": 'struct.pack("!cII", b"D", 1, 2**32 - 1)',
    "a message of 4 GB": 'struct.pack("!cII", b"D", 1, 4) + struct.pack("!I", 2**32 - 1)',
    "nothing but zeros": "bytes(100000)",
}


# Case 49.
async def test_garbage_or_a_part_of_a_frame_ends_the_block_at_most(subject: Subject) -> None:
    for what, data in GARBAGE.items():
        code = f"""
        {FORGE.replace(chr(10), chr(10) + "    ")}
        data = {data}
        while data:
            try: data = data[os.write(control_socket(), data):]
            except OSError: break
        print("sent", flush=True)
        """
        result = await subject.run(code)
        assert result.outcome in ("ok", "crashed"), (what, result)
        assert result.exit_code == 0 or result.outcome == "crashed", (what, result)
        assert result.state in (("kept", "restored") if subject.session else ("kept",)), (what, result)
        assert await subject.out("print('next')") == "next\n", what


# Case 50.
async def test_a_length_of_4_gb_allocates_nothing(subject: Subject) -> None:
    measure = "print(int(open('/proc/1/statm').read().split()[1]) * 4096)"
    before = int(await subject.out(measure))
    code = f"""
    {FORGE}
    import time
    os.write(control_socket(), struct.pack("!cII", b"D", 1, 2**32 - 1) + b"x" * 100_000)
    time.sleep(0.1)
    """
    await subject.run(code)
    assert int(await subject.out(measure)) - before < 8_000_000


CLOSED = [
    ("for fd in (0, 1, 2): os.close(fd)", {"ok"}),
    ("os.closerange(0, 1000)", {"ok", "crashed"}),
    ("os.close(1); os.close(2); raise ValueError('said nowhere')", {"error"}),
    ("sys.stdout.close(); sys.stderr.close(); sys.stdin.close(); print('x')", {"ok", "error"}),
    ("os.dup2(os.open('/dev/null', 0), 1); os.dup2(0, 2); print('to nobody')", {"ok", "error"}),
    ("for fd in range(3, 1000):\n    try: os.dup2(1, fd)\n    except OSError: pass", {"ok", "crashed"}),
]


# Case 51.
async def test_closed_descriptors_are_typed(subject: Subject) -> None:
    for code, outcomes in CLOSED:
        result = await subject.run(f"import os, sys\n{code}")
        assert result.outcome in outcomes, (code, result)
        if result.outcome == "crashed":
            assert result.error is not None
            assert result.error.type in ("ConnectionLost", "EarlyExit"), (code, result)
            assert result.state == ("restored" if subject.session else "kept"), (code, result)
        if "ValueError" in code:
            assert result.error is not None
            assert (result.error.type, result.error.message) == ("ValueError", "said nowhere")
        assert await subject.out("print('next')") == "next\n", code


class Boom:
    """Runs when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return (print, ("unpickled",))


# Case 60.
async def test_a_pickle_as_a_value_an_error_or_a_file_is_bytes_to_the_host(subject, monkeypatch, capsys):
    def never(*_: object) -> None:
        raise AssertionError("the host has unpickled something")

    payload = pickle.dumps(Boom())
    for name in ("loads", "load", "Unpickler"):
        monkeypatch.setattr(pickle, name, never)
    code = f"""
    {FORGE}
    payload = bytes.fromhex({payload.hex()!r})
    open("data.pkl", "wb").write(payload)
    os.write(1, payload)
    class Loud(Exception):
        def __reduce__(self): return (print, ("unpickled",))
    raise Loud(payload.decode("latin-1"))
    """
    result = await subject.run(code)
    assert result.error is not None
    assert (result.outcome, result.error.type, result.error.message) == ("error", "Loud", payload.decode("latin-1"))
    stored = {item.name: item.path for item in result.artifacts}
    assert stored["data.pkl"] is not None
    assert stored["data.pkl"].read_bytes() == payload
    assert "unpickled" not in capsys.readouterr().out


# The code knows the runner's source, so it need not go through our client.
RAW = """
    import os, select, struct, sys
    tools = sys.modules["codeact_runner.worker.tools"]
    client = tools._Running.client

    def send(payload):
        return client.call(payload).decode()

    def frame(kind, number, payload=b""):
        return struct.pack("!cII", kind, number, len(payload)) + payload

    def call(number, **arguments):
        import json
        return frame(b"T", number, json.dumps({"name": "echo", "arguments": arguments}).encode())
"""
# Worse than deep: what costs much for each byte. `%` is put in place of the braces of a template.
PAYLOADS = {
    "deep lists": "b'[' * 100_000",
    "deep objects": "b'{\"a\":' * 100_000",
    "deep in an argument": 'b\'{"name":"echo","arguments":{"thing":\' + b"[" * 100_000 + b"]" * 100_000 + b"}}"',
    "many lists": 'b\'{"name":"echo","arguments":{"thing":[\' + b"[]," * 340_000 + b"0]}}"',
    "many objects": 'b\'{"name":"echo","arguments":{"thing":[\' + b"{}," * 340_000 + b"0]}}"',
    "many keys": 'b\'{"name":"echo","arguments":{\' + b",".join(b\'"%x":0\' % n for n in range(90_000)) + b"}}"',
    "many digits": "b'9' * 1_000_000",
    "long numbers": "b'[' + (b'9' * 4000 + b',') * 250 + b'0]'",
    "escapes": "b'\"' + b'\\\\ud800' * 150_000 + b'\"'",
    "half an escape": 'b\'{"name":"echo","arguments":{"thing":"\\\\ud800"}}\'',
    "not UTF-8": 'b\'{"name":"\\xff","arguments":{}}\'',
    "nothing": "b''",
    "zeros": "bytes(1_000_000)",
}


async def echo(thing: Any = None) -> Any:
    """Give it back."""
    return thing


# Case 59.
@one_kind
async def test_no_payload_stalls_the_hosts_loop(subject: Subject) -> None:
    subject.kept = 64 * MIB  # a call of 50,000 lists at most, as long as it is read
    await subject.start({"tools": [Tool(echo)]})
    for name, payload in PAYLOADS.items():
        answer = await subject.out(f"{RAW}\n    print(send({payload})[:120])", timeout=30)
        assert answer.startswith('{"error":{"name":"BadCall",'), (name, answer)
        subject.check_event_loop(name)


# Case 61.
@one_kind
async def test_names_that_are_no_tools_and_wrong_calls_are_errors(subject: Subject) -> None:
    await subject.start({"tools": [Tool(echo)]})
    names = ["nope", "run", "__class__", "_call", "echo.__globals__", "", "echo\0", "ECHO", "é" * 1000]
    wrong = ['{"name":"echo"}', '{"name":"echo","arguments":[1]}', '{"arguments":{}}', "[]", "3"]
    code = f"""{RAW}
    import traceback
    from host_tools import _call
    for name in {names!r}:
        try:
            _call(name, {{}})
        except Exception:
            traceback.print_exc()
    for wrong in {wrong!r}:
        print(send(wrong.encode()))
    """
    output = await subject.out(code)
    assert output.count("UnknownTool: there is no host tool") == len(names)
    assert output.count("the call is not an object with a name and arguments by name") == len(wrong)
    assert "test_d_protocol" not in output


def resident_kib(pid: int) -> int:
    """Memory of a process of this machine, at its most."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1])


# Case 62.
@each_engine
@pytest.mark.parametrize("reads", [True, False], ids=["reading", "not reading"])
async def test_a_hundred_thousand_calls_at_once_are_bounded(subject: Subject, reads: bool) -> None:
    running = most = 0

    async def count(thing: Any = None) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1
        return thing

    count.__name__ = "echo"
    await subject.start({"tools": [Tool(count)], "tool_limits": ToolLimits(calls=1000)})
    supervisor = subject.pid_one()
    assert supervisor is not None
    await subject.out("print(echo('x' * 1000)[:1])")
    before = resident_kib(supervisor)
    code = f"""{RAW}
    fd, answered = client._fd, 0
    frames = memoryview(b"".join(call(n, thing="x" * {10 if reads else 1000}) for n in range(1, {100_001 if reads else 20_001})))
    poll = select.poll()
    poll.register(fd, select.POLLIN | select.POLLOUT if {reads} else select.POLLOUT)
    while frames and (events := poll.poll({None if reads else 1500})):
        if events[0][1] & select.POLLIN:
            answered += len(os.read(fd, 1 << 16))
        if events[0][1] & select.POLLOUT:
            frames = frames[os.write(fd, frames[:1 << 16]):]
    print(answered > 0, len(frames) > 0)
    """
    result = await subject.run(code, timeout=15)
    # How far it comes depends on the machine; one that does not read its answers is stopped long before 20,000 kB are taken.
    if reads:
        assert result.outcome in {"ok", "timeout"}
        assert any("more calls to host tools were refused" in note for note in result.notes)
    else:
        assert (result.outcome, result.output) == ("ok", "False True\n")
    assert 1 < most <= 16
    assert len(result.tool_calls) <= 1000
    assert resident_kib(supervisor) - before < 16 * 1024


# Case 63.
@one_kind
async def test_a_tool_that_raises_what_ends_a_program_does_not_end_the_host(subject: Subject) -> None:
    kinds = {
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "generator": GeneratorExit(),
        "base": BaseException("b"),
    }

    async def fail(kind: str) -> None:
        raise kinds[kind]

    def fail_in_a_thread(kind: str) -> None:
        raise kinds[kind]

    await subject.start({"tools": [Tool(fail), Tool(fail_in_a_thread)]})
    code = f"""
        from host_tools import ToolError
        for function in (fail, fail_in_a_thread):
            for kind in {list(kinds)}:
                try: function(kind)
                except ToolError as error: print(type(error).__name__, error.type)
    """
    loop = asyncio.get_running_loop()
    names = ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "BaseException"]
    assert await subject.out(code) == "".join(f"ToolError {name}\n" for name in names * 2)
    assert loop.is_running()


# Case 64.
@each_engine
async def test_a_tool_that_outlives_its_block_is_cancelled_and_its_late_answer_ignored(subject, caplog):
    release = asyncio.Event()
    heard: list[str] = []

    async def deaf(who: str) -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                heard.append(who)
        return f"late, for {who}"

    async def free(who: str) -> str:
        release.set()
        await asyncio.sleep(0.2)
        return f"in time, for {who}"

    await subject.start({"tools": [Tool(deaf), Tool(free)]})
    with caplog.at_level(logging.WARNING, "codeact_sandbox"):
        result = await subject.run("print(deaf('first'))", timeout=3)
    assert (result.outcome, result.output) == ("timeout", "\n Timeout")
    assert [(call.outcome, call.result) for call in result.tool_calls] == [("cancelled", None)]
    assert heard == ["first"]
    assert caplog.messages == ["the host tool deaf goes on though its block has ended"]
    # Its call has the same number as that of the block before.
    assert await subject.out("print(free('second'))") == "in time, for second\n"

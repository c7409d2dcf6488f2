"""D. Protocol, the part about host tools: whatever the code calls and however, the host's loop and later blocks go on."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.executors import ToolLimits
from tests.sandbox.tools.host_tools import Tool

from .oracles import MIB
from .subject import Subject, each_engine, one_kind

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
    assert "test_d_tools" not in output


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

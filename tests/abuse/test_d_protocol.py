"""D 47 to 51 and 60: forged results, frames through every descriptor, garbage, length prefixes, payloads with a type.

Code can write to the socket by which its own process reports, and so it can lie about its own block; about nothing else. The
parsers by themselves are in `tests/sandbox/host/test_frames.py`.
"""

import json
import pickle

from tests.sandbox.sandboxes import FORGE

from .subject import Subject

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

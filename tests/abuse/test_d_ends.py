"""D 52 to 58: who is killed, how a block ends, what it replaces, and what it says that is no text."""

import signal

from autogen_codeact.executors import ExecutionResult

from .subject import Subject

KILLS = {
    "PID 1": "\n".join(
        [
            "for number in range(1, 65):",
            "    try: number not in (32, 33) and os.kill(1, number)",
            "    except PermissionError: pass",
        ]
    ),
    "the zygote": "os.kill(zygote(), 9); time.sleep(0.1)",
    "the zygote stopped": "os.kill(zygote(), signal.SIGSTOP)",
    "the parent": "os.kill(os.getppid(), 9); time.sleep(0.1)",
    "its group": "os.killpg(0, 9)",
    "everything": "os.kill(-1, 9); time.sleep(0.2)",
    "everything, again and again": "\n".join(
        ["for _ in range(50):", "    try: os.kill(-1, 9)", "    except OSError: pass", "    time.sleep(0.01)"]
    ),
    "everything softly": "os.kill(-1, signal.SIGTERM); os.kill(-1, signal.SIGINT); time.sleep(0.1)",
    "everything stopped": "os.kill(-1, signal.SIGSTOP)",
    "everything and itself stopped": "os.kill(-1, signal.SIGSTOP); os.kill(os.getpid(), signal.SIGSTOP)",
    "all but itself with each signal": "\n".join(
        [
            "for number in range(1, 65):",
            "    for pid in (int(pid) for pid in os.listdir('/proc') if pid.isdigit()):",
            "        try: pid != os.getpid() and os.kill(pid, number)",
            "        except OSError: pass",
        ]
    ),
}
ZYGOTE = """import os, signal, time
def zygote():
    def parent(pid):
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]
    return int([pid for pid in os.listdir("/proc") if pid.isdigit() and parent(pid) == "1" and int(pid) != os.getpid()][0])
"""


# Case 52.
async def test_whoever_is_killed_the_result_is_typed_and_pid_1_lives(subject: Subject) -> None:
    await subject.start()
    before = subject.pid_one()
    for whom, code in KILLS.items():
        stopped = whom == "everything and itself stopped"
        result = await subject.run(ZYGOTE + code, timeout=2 if stopped else 8)
        assert result.outcome in (("timeout",) if stopped else ("ok", "error", "crashed")), (whom, result)
        assert result.outcome != "crashed" or result.error is not None, (whom, result)
        if whom == "PID 1":
            assert (result.outcome, result.state) == ("ok", "kept")
        assert await subject.out("print('next')") == "next\n", whom
    assert subject.pid_one() == before


ENDS = [
    ("import sys; sys.exit()", "ok", 0),
    ("import sys; sys.exit(0)", "ok", 0),
    ("import sys; sys.exit(None)", "ok", 0),
    ("import sys; sys.exit(3)", "error", 3),
    ("import sys; sys.exit(124)", "error", 124),
    ("import sys; sys.exit(137)", "error", 137),
    ("import sys; sys.exit(256)", "ok", 0),
    ("import sys; sys.exit(-1)", "error", 255),
    ("import sys; sys.exit(True)", "error", 1),
    ("import sys; sys.exit('a message')", "error", 1),
    ("import sys; sys.exit(2.5)", "error", 1),
    ("raise SystemExit(7)", "error", 7),
    ("exit(8)", "error", 8),
    ("quit(9)", "error", 9),
    ("try:\n    raise ValueError\nfinally:\n    raise SystemExit(11)", "error", 11),
    ("class S(SystemExit): code = 13\nraise S", "error", 13),
    ("raise KeyboardInterrupt", "error", 130),
]


# Case 53.
async def test_sys_exit_in_all_its_forms_is_that_exit_code(subject: Subject) -> None:
    await subject.start()
    seen = [(code, *_verdict(await subject.run(code))) for code, _, _ in ENDS]
    assert seen == ENDS
    assert "a message" in (await subject.run("import sys; sys.exit('a message')")).output


def _verdict(result: ExecutionResult) -> tuple[str, int]:
    assert result.state == "kept"
    return result.outcome, result.exit_code


# Case 54.
async def test_an_end_before_the_result_is_no_success(subject: Subject) -> None:
    for code in ("os._exit(0)", "os._exit(3)", "os.execv('/bin/true', ['true'])"):
        result = await subject.run(f"import os\nprint('before', flush=True)\n{code}")
        assert (result.outcome, result.output) == ("crashed", "before\n"), code
        assert result.exit_code == (3 if "3" in code else 1), code
        assert result.error is not None
        assert result.error.type == "EarlyExit", code
        assert result.state == ("restored" if subject.session else "kept"), code


SIGNALS = [signal.Signals[f"SIG{name}"] for name in ("SEGV", "KILL", "ABRT", "BUS", "FPE", "ILL", "TERM", "ALRM")]


# Case 55.
async def test_the_signal_that_ended_a_block_is_named(subject: Subject) -> None:
    for number in SIGNALS:
        result = await subject.run(f"import os; print('before', flush=True); os.kill(os.getpid(), {int(number)})")
        assert (result.outcome, result.exit_code, result.output) == ("crashed", 128 + number, "before\n"), result
        assert result.error is not None
        assert (result.error.type, result.error.message) == (number.name, f"the process was ended by {number.name}")
    result = await subject.run("import ctypes; ctypes.string_at(0)")
    assert (result.outcome, result.exit_code) == ("crashed", 128 + signal.SIGSEGV)
    shell = await subject.run("kill -SEGV $$", "sh")
    assert (shell.outcome, shell.exit_code) == ("crashed", 128 + signal.SIGSEGV)


REPLACED = """
    import builtins, gc, io, json, os, signal, socket, struct, sys, threading, time, traceback
    for name in ("print", "len", "open", "isinstance", "str", "repr", "bytes", "exec", "compile", "eval", "__import__", "dict",
                 "list", "ValueError", "BaseException", "getattr", "setattr", "hasattr", "type", "super", "min", "max", "map"):
        vars(builtins)[name] = None
    sys.modules["json"] = sys.modules["os"] = sys.modules["ast"] = sys.modules["traceback"] = None
    json.JSONEncoder = json.loads = json.dumps = struct.pack = struct.Struct = None
    sys.stdout = sys.stderr = sys.stdin = sys.__stdout__ = sys.excepthook = sys.displayhook = None
    signal.signal = threading.Thread = threading.current_thread = threading.main_thread = None
    sys.path[:] = []; sys.argv = None; sys.meta_path[:] = []; sys.path_hooks[:] = []
    gc.disable()
    os.write(1, b"replaced")
"""


# Case 56.
async def test_what_a_block_replaces_does_not_spoil_the_next(subject: Subject) -> None:
    await subject.start()
    result = await subject.run(REPLACED)
    assert result.outcome in ("ok", "error", "crashed")
    assert "replaced" in result.output
    if subject.session:
        # Its import system and modules are the session's own, and stay as the code has left them.
        assert await subject.out("print(len('later'), repr(str(1)), isinstance([], list))") == "5 '1' True\n"
        restored = await subject.run("import os; os._exit(1)")
        assert restored.outcome == "crashed"
        await subject.executor.restart()
        subject.look()
        subject._lost = True
        return
    assert (
        await subject.out("import json, os, ast; print(json.dumps([len('later'), os.getcwd()]))")
        == '[5, "/workspace"]\n'
    )


# Case 57.
async def test_what_is_no_text_is_replaced_and_never_raises(subject: Subject) -> None:
    code = """
    import os, sys
    os.write(1, b"\\xff\\xfe nul \\0 half \\xe2\\x82\\n")
    print("lone \\ud800 ansi \\x1b[31m bell \\a rtl \\u202e")
    sys.stderr.write("\\udcff\\n")
    for name in (b"bad\\xff\\xfe", b"ansi\\x1b[31m", b"new\\nline", os.fsencode("lone\\udc80"), b"\\x01\\x7f"):
        open(b"/workspace/" + name, "w").write("x")
    raise ValueError("lone \\ud800 nul \\0 ansi \\x1b[31m \\xff")
    """
    result = await subject.run(code)
    assert (result.outcome, result.exit_code) == ("error", 1)
    assert result.output.startswith(
        "\ufffd\ufffd nul \0 half \ufffd\nlone \\ud800 ansi \x1b[31m bell \a rtl \u202e\n\\udcff\n"
    )
    assert result.error is not None
    assert result.error.message == "lone \\ud800 nul \0 ansi \x1b[31m \xff"
    named = {item.name: item.note for item in result.artifacts if item.path is None}
    assert set(named) == {"bad\\udcff\\udcfe", "ansi\\x1b[31m", "new\\nline", "lone\\udc80", "\\x01\\x7f"}
    texts = [result.output, result.error.message, *result.notes, *named, *map(str, named.values())]
    assert "".join(texts).encode()
    assert all(name.isprintable() for name in named)
    assert await subject.executor.list_files() is not None


REPRS = {
    "huge": "return 'x' * 5_000_000",
    "looping": "while True: pass",
    "recursive": "return repr(self)",
    "raising": "raise SystemExit(0)",
    "no text": "return 5",
    "a string of its own": "class S(str):\n   def __getitem__(self, key): return self * 10**9\n  return S('mine')",
    "printing": "print('printed'); return 'shown'",
    "killing": "import os; os._exit(0)",
}


# Case 58.
async def test_a_huge_or_looping_repr_is_bounded(subject: Subject) -> None:
    await subject.start()
    # IPython, which the default image has, prints the error of a value that can't be shown, and the cell ends well.
    printed = "ok" if subject.session and subject.kind.engine == "docker" else "error"
    expected = {"looping": "timeout", "recursive": printed, "raising": "ok", "no text": printed, "killing": "crashed"}
    use = "Odd()" if subject.session else "print(repr(Odd())[:10**9])"
    for what, body in REPRS.items():
        timeout = 0.4 if what == "looping" else 30  # it uses a processor all the time
        result = await subject.run(f"class Odd:\n def __repr__(self):\n  {body}\n{use}", timeout=timeout)
        assert result.outcome == expected.get(what, result.outcome), (what, result.outcome)
        assert result.outcome in ("ok", "error", "timeout", "crashed", "oom"), what
        assert len(result.output) < 2 * subject.limits.output, what
        assert len(result.value_repr or "") <= 64 * 1024, what


# Case 58.
async def test_a_huge_or_looping_message_of_an_exception_is_bounded(subject: Subject) -> None:
    await subject.start()
    for what in ("huge", "looping", "raising", "no text"):
        code = f"class Odd(Exception):\n def __str__(self):\n  {REPRS[what]}\nraise Odd"
        result = await subject.run(code, timeout=0.4 if what == "looping" else 30)
        assert result.outcome == ("timeout" if what == "looping" else "error"), (what, result.outcome)
        assert len(result.output) < 2 * subject.limits.output, what
        if result.error is not None:
            assert result.error.type == "Odd", what
            assert len(result.error.message) <= 16 * 1024, what

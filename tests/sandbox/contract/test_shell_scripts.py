"""Shell blocks run as scripts of their own: what surrounds them is invisible, and a session takes over what they change."""

import asyncio

import pytest

from tests.sandbox.sandboxes import out, run

SESSIONS = pytest.mark.parametrize("backend", ["docker-session", "bubblewrap-session"], indirect=True, scope="module")
LOST = "The script replaced its shell"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('main() { echo ran; }; [[ "${BASH_SOURCE[0]}" == "$0" ]] && main "$@"', "ran\n"),
        ("(return 0 2>/dev/null) && echo sourced || echo script", "script\n"),
        ('echo "$# ${1-none} $(dirname "$0")"', "0 none /workspace\n"),
        ("echo ${#BASH_SOURCE[@]} ${BASH_ENV-unset}; declare -F trap; alias trap 2>/dev/null; true", "1 unset\n"),
        ("exec 9>lock; flock 9; echo locked; wc -c <lock; rm lock", "locked\n0\n"),
        ("f() { trap 'echo returned' RETURN; echo inside; }; f; echo after", "inside\nreturned\nafter\n"),
    ],
)
async def test_bash_script_sees_no_wrapper(executor, script, expected):
    assert await out(executor, f"cd /workspace\n{script}", "bash") == expected


@pytest.mark.parametrize("language", ["bash", "sh"])
async def test_script_errors_name_the_script(executor, language):
    output = (await run(executor, "nosuchcommand", language)).output
    assert output.startswith("/workspace/")
    assert output.endswith("nosuchcommand: " + output.rpartition(": ")[2])
    assert "/proc" not in output


@SESSIONS
@pytest.mark.parametrize("language", ["bash", "sh"])
@pytest.mark.parametrize(
    ("trap", "exit_code", "printed"),
    [
        ("trap 'echo bye $?' EXIT", 3, "bye 3\n"),
        ("trap 'echo bye; exit 4' 0", 4, "bye\n"),
        ("trap -- 'echo a' INT EXIT", 3, "a\n"),
        ("trap 'echo a' EXIT; trap - EXIT", 3, ""),
        ("trap 'echo a' EXIT; trap 0", 3, ""),
        ("trap 'echo a' EXIT; trap EXIT", 3, ""),
        ("trap 'echo a' EXIT; trap '' EXIT", 3, ""),
        ("trap 'echo a' INT; trap 2 15; echo EXIT >/dev/null; trap >/dev/null", 3, ""),
        ("(trap 'cd /; echo sub' EXIT; cd /etc)", 3, "sub\n"),
    ],
)
async def test_own_exit_trap_keeps_directory_and_exports(executor, language, trap, exit_code, printed):
    result = await run(executor, f"{trap}\ncd /usr\nexport KEPT='{language} {exit_code}'\nexit 3", language)
    assert (result.exit_code, result.output, result.notes) == (exit_code, printed, ())
    seen = await out(executor, "import os; os.getcwd(), os.environ['KEPT']")
    assert seen == f"('/usr', '{language} {exit_code}')\n"


@SESSIONS
@pytest.mark.parametrize("language", ["bash", "sh"])
async def test_script_that_replaces_its_shell_is_reported(executor, language):
    await run(executor, "cd /workspace; export KEPT=before", language)
    result = await run(executor, "cd /tmp; export KEPT=after; exec echo replaced", language)
    assert (result.output, [note[: len(LOST)] for note in result.notes]) == ("replaced\n", [LOST])
    assert await out(executor, "import os; os.getcwd(), os.environ['KEPT']") == "('/workspace', 'before')\n"


@SESSIONS
async def test_shell_keeps_what_it_cannot_name(executor):
    await run(
        executor, "import os; os.environ.update({'spring.profile': 'dev', 'my-key': '1', 'PLAIN': 'x', 'GONE': 'y'})"
    )
    await run(executor, "shout() { echo shouted; }; export -f shout", "bash")
    await run(executor, "unset GONE", "sh")
    assert await out(executor, "shout", "bash") == "shouted\n"
    names = ("spring.profile", "my-key", "PLAIN", "GONE")
    assert await out(executor, f"[os.environ.get(name) for name in {names}]") == "['dev', '1', 'x', None]\n"


@SESSIONS
async def test_file_of_a_session_script_is_hidden(executor):
    assert await out(executor, "cd /workspace; rm -f *; ls; echo *", "bash") == "*\n"
    assert await out(executor, "import os; os.listdir('/workspace')") == "[]\n"


@SESSIONS
@pytest.mark.parametrize(
    ("signal", "state", "value"), [("TERM", "restored", "'before'\n"), ("KILL", "lost", "NameError")]
)
async def test_script_that_ends_the_interpreter_says_so(executor, signal, state, value):
    await run(executor, "kept = 'before'")
    await asyncio.sleep(0.2)  # until the session has its checkpoint for the next block
    result = await run(executor, f"pkill -{signal} -f python; sleep 0.2; echo done; cd /tmp", "bash")
    assert (result.outcome, result.state, result.output, len(result.notes)) == ("ok", state, "done\n", 1)
    following = await run(executor, "kept")
    assert (following.state, following.notes) == ("kept", ())
    assert value in following.output
    assert await out(executor, "import os; os.getcwd()") == "'/tmp'\n"

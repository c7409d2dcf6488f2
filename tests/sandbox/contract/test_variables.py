"""What variables of `environment=` do: the same in every executor and mode, also when a process of the sandbox is replaced."""

import json

from tests.sandbox.contract.conftest import EACH_ONCE
from tests.sandbox.sandboxes import out, run

GIVEN = {
    "KEY": "a/b \u00e9",
    "TZ": "Asia/Tokyo",
    "PATH": "/workspace/bin:/usr/local/bin:/usr/bin:/bin",
    "PYTHONPATH": "/workspace/lib:relative::/workspace/lib.zip",
    "PYTHONHASHSEED": "0",
    "PYTHONOPTIMIZE": "1",
    "PYTHONWARNINGS": "error::UserWarning,ignore::DeprecationWarning",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}
ENTRIES = ["/workspace/lib", "/workspace/relative", "/workspace/lib.zip"]
LOOK = f"""
    import json, os, sys, time, warnings
    where = [sys.path.index(entry) for entry in {ENTRIES}]
    stdlib = sys.path.index(os.path.dirname(os.__file__))
    try: warnings.warn("x", UserWarning); raised = False
    except UserWarning: raised = True
    print(json.dumps([
        {{name: os.environ[name] for name in {list(GIVEN)}}},
        where == sorted(where) and where[-1] < stdlib,
        [hash("a"), sys.flags.optimize, sys.dont_write_bytecode, raised, time.tzname[0]],
        [name for name in os.environ if name.startswith("CODEACT")],
    ]))
"""
SEEN = [GIVEN, True, [4644417185603328019, 1, True, True, "JST"], []]
# Kills the process that blocks are forked from; the one after is to be the same.
KILL_ZYGOTE = """
    import os, signal
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try: parents[int(pid)] = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
        except OSError: pass
    for pid, parent in parents.items():
        if parent == 1 and pid != os.getpid(): os.kill(pid, signal.SIGKILL)
"""


@EACH_ONCE
async def test_a_block_has_the_variables_in_any_process(make, backend):
    executor = await make(environment=GIVEN)
    assert json.loads(await out(executor, LOOK)) == SEEN
    await run(executor, KILL_ZYGOTE)
    assert json.loads(await out(executor, LOOK)) == SEEN
    if backend.session:
        result = await run(executor, "import os; os.environ['KEY'] = 'other'; os._exit(1)")
        assert (result.outcome, result.state) == ("crashed", "restored")
        assert json.loads(await out(executor, LOOK)) == SEEN
        await run(executor, "kill -9 -1", "sh")
        assert json.loads(await out(executor, LOOK)) == SEEN
    await executor.restart()
    assert json.loads(await out(executor, LOOK)) == SEEN


@EACH_ONCE
async def test_a_program_of_a_block_has_the_variables_at_its_start(make, backend):
    executor = await make(environment=GIVEN)
    assert await out(executor, 'echo "$KEY $TZ $PYTHONHASHSEED"; date +%Z', "sh") == "a/b \u00e9 Asia/Tokyo 0\nJST\n"
    started = "import os, sys; print(hash('a'), sys.flags.optimize, sys.path[1:3])"
    shown = await out(executor, f"python3 -c {json.dumps(started)}", "sh")
    assert shown == "4644417185603328019 1 ['/workspace/lib', '/workspace/relative']\n"
    await out(executor, "mkdir bin && printf '#!/bin/sh\\necho mine' > bin/mine && chmod 755 bin/mine", "sh")
    assert await out(executor, "mine", "sh") == "mine\n"
    assert await out(executor, "import subprocess; print(subprocess.check_output('mine').decode())") == "mine\n\n"

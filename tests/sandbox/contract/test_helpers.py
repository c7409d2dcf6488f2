"""Threads and processes of libraries: with functions of a cell, and after a restored checkpoint, which does not have them."""

import pytest

from tests.sandbox.sandboxes import out, run

SESSIONS = pytest.mark.parametrize("backend", ["docker-session", "bubblewrap-session"], indirect=True, scope="module")
IN_DOCKER = pytest.mark.parametrize("backend", ["docker-session"], indirect=True, scope="module")
CELL = """
    import concurrent.futures as futures, functools, multiprocessing
    OFFSET = 10
    class Point:
        def __init__(self, x): self.x = x
    @functools.lru_cache
    def shifted(x): return x + OFFSET
    if OFFSET:
        def moved(point): return shifted(point.x)
"""


async def restore(executor):
    """Let a block run into its deadline: the session continues with the checkpoint before it."""
    result = await executor.run("while True: pass", timeout=1)
    assert (result.outcome, result.state) == ("timeout", "restored")


@SESSIONS
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
async def test_new_processes_find_what_cells_define(executor, method):
    await run(executor, CELL)
    pool = f"with multiprocessing.get_context({method!r}).Pool(1) as pool: pool.map(moved, [Point(1), Point(2)])"
    assert await out(executor, pool.replace(": pool", ": print(pool").replace(")])", ")]))")) == "[11, 12]\n"


@SESSIONS
async def test_name_that_is_not_written_as_a_literal_fails_at_once(executor):
    await run(executor, CELL + "\n    computed = sum([1])\n    def uses(x): return x + computed")
    submit = "with futures.ProcessPoolExecutor(1, multiprocessing.get_context('spawn')) as pool: pool.submit(uses, 1).result()"
    result = await run(executor, submit)
    assert (result.error.type, result.error.message) == ("NameError", "name 'computed' is not defined")


@SESSIONS
async def test_pools_work_or_fail_at_once_after_a_restore(executor):
    await run(executor, CELL)
    await run(executor, "threads, processes = futures.ThreadPoolExecutor(2), futures.ProcessPoolExecutor(2)")
    await run(executor, "context = multiprocessing.get_context('forkserver'); pool = multiprocessing.Pool(1)")
    use = "[list(each.map(shifted, [1, 2])) for each in (threads, processes)]"
    assert await out(executor, use) == "[[11, 12], [11, 12]]\n"
    assert await out(executor, "with context.Pool(1) as other: print(other.map(shifted, [1]))") == "[11]\n"
    await restore(executor)
    assert await out(executor, use) == "[[11, 12], [11, 12]]\n"
    assert await out(executor, "with context.Pool(1) as other: print(other.map(shifted, [1]))") == "[11]\n"
    assert (await run(executor, "pool.map(shifted, [1])")).error.message == "Pool not running"


@IN_DOCKER
async def test_joblib_prints_only_results_and_works_after_a_restore(executor):
    await run(executor, "from joblib import Parallel, delayed\ndef square(x): return x * x")
    parallel = "print(Parallel(n_jobs=2)(delayed(square)(i) for i in range(4)))"
    assert await out(executor, parallel) == "[0, 1, 4, 9]\n"
    await restore(executor)
    assert await out(executor, parallel) == "[0, 1, 4, 9]\n"


@IN_DOCKER
async def test_openmp_threads_start_again_after_a_restore(make):
    executor = await make(environment={"OMP_NUM_THREADS": "3"})
    await run(executor, "import numpy as np, os\nfrom sklearn.ensemble import HistGradientBoostingClassifier as Model")
    await run(executor, "x = np.arange(4000.0).reshape(2000, 2); y = x[:, 0] > 1000")
    fit = "Model(max_iter=2).fit(x, y); len(os.listdir('/proc/self/task'))"
    assert await out(executor, fit) == "3\n"
    await restore(executor)
    assert await out(executor, fit) == "3\n"


@pytest.mark.parametrize("backend", ["docker-process", "bubblewrap-session"], indirect=True, scope="module")
async def test_flags_are_those_of_a_plain_interpreter(executor):
    code = "import subprocess, sys; own = repr(sys.flags)\n"
    child = "subprocess.check_output([sys.executable, '-c', 'import sys; print(sys.flags)'], text=True).strip()"
    assert await out(executor, f"{code}print(own == {child}, sys.flags.isolated, sys.flags.no_site)") == "True 0 0\n"


@SESSIONS
@pytest.mark.parametrize(
    "wrap",
    [
        "io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')",
        "codecs.getwriter('utf-8')(sys.stdout.buffer)",
        "io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8')",
        "os.fdopen(sys.stdout.fileno(), 'w')",
        "open(1, 'w', closefd=False)",
    ],
)
async def test_wrapped_standard_output_writes_and_leaves_later_blocks_alone(executor, wrap):
    assert await out(executor, f"import codecs, io, os, sys\nsys.stdout = {wrap}\nprint('größe')") == "größe\n"
    assert await out(executor, "print('next')") == "next\n"


@SESSIONS
@pytest.mark.parametrize("name", ["pprint", "subprocess", "difflib", "tempfile", "asyncio"])
async def test_file_with_a_module_name_does_not_shadow_the_sandbox(executor, name):
    await run(executor, f"import os; os.chdir('/workspace'); open('{name}.py', 'w').write('VALUE = 1')")
    assert await out(executor, "!echo shell") == "shell\n"
    assert await out(executor, "{'a' * 60: 'b' * 60}") == f"{ {'a' * 60: 'b' * 60} }\n"
    await run(executor, f"os.remove('{name}.py')")

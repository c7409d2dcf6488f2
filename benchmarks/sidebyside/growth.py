"""Growth of cost: seconds as a function of one quantity, for some variants each."""

from .cells import COMMAND_LINE, KINDS

SMALL = "print(6 * 7)"
SESSIONS = [1, 2, 4, 8, 16, 32, 64]
OUTPUT = [1, 1_000, 10_000, 100_000, 1_000_000, 10_000_000]
HEAP_MB = [0, 25, 50, 100, 200, 400, 800]
FILES = [1, 10, 100, 1_000, 10_000]
CURVES = {
    "sessions": ("live sessions", "one block while the other sessions idle, and one block in each at the same time"),
    "output": ("bytes of output", "a block that writes this much output, with the limit raised above it"),
    "heap": ("MB of heap", "one small block in a session with a heap of this size, filled with objects of 1 KB"),
    "files": ("files in work_dir", "one small block while work_dir contains this many files"),
}


async def measure(bench, times, small=False):
    """Measure all curves: {curve: {line: [[x, [seconds …]], …]}}."""
    curves = {name: {} for name in CURVES}
    cut = 3 if small else None
    await _sessions(bench, curves["sessions"], SESSIONS[:cut], times)
    await _simple(bench, curves["output"], OUTPUT[:cut], times=times, work=_output, way="session, raised limits")
    for way in ("session, raised limits", "session, raised limits, no checkpoint"):
        await _heap(bench, curves["heap"], HEAP_MB[:cut], times, f"docker, {way}")
    await _simple(bench, curves["files"], FILES[:cut], times=times, work=_files, way="process")
    return curves


async def _timed(bench, line, x, *, variant, key, code, times, expect=None):
    seconds = await bench.attempt(variant, "run", key=key, language="python", code=code, times=times + 1, expect=expect)
    if seconds is not None:
        line.append([x, seconds[1:]])


async def _sessions(bench, curve, counts, times):
    for kind in KINDS:
        variant, keys = f"{kind}, session", []
        alone, at_once = curve.setdefault(f"{kind}, alone", []), curve.setdefault(f"{kind}, all at once", [])
        for count in counts:
            more = await bench.open(variant, count - len(keys), at_once=4)
            if more is None:
                break
            keys += more
            await _timed(bench, alone, count, variant=variant, key=keys[0], code=SMALL, times=4 * times, expect="42\n")
            request = {"keys": keys, "count": 1, "language": "python", "code": "print(6 * 7)"}
            seconds = [await bench.attempt(variant, "together", **request) for _ in range(times + 1)][1:]
            if None not in seconds:
                at_once.append([count, seconds])
        await bench.close(variant, keys)


async def _simple(bench, curve, sizes, *, times, work, way):
    for variant in [*(f"{kind}, {way}" for kind in KINDS), COMMAND_LINE]:
        keys = None
        for size in sizes:
            # A life each, so that one point does not pay for the other; not where a stop takes ten seconds.
            if keys is None or variant != COMMAND_LINE:
                await bench.close(variant, keys)
                keys = await bench.open(variant)
            if keys:
                await work(bench, curve.setdefault(variant, []), size, variant=variant, key=keys[0], times=times)
        await bench.close(variant, keys)


async def _output(bench, line, size, *, variant, key, times):
    code = f"import sys\nwritten = sys.stdout.write('x' * {size})"
    expect = "x" * size if size <= 1_000_000 else None
    await _timed(bench, line, size, variant=variant, key=key, code=code, times=times, expect=expect)


async def _files(bench, line, size, *, variant, key, times):
    if variant == COMMAND_LINE:
        code = f"import pathlib\nfor n in range({size}): pathlib.Path(f'f{{n}}.txt').write_text(f'file {{n}}')\n"
        if await bench.attempt(variant, "run", key=key, language="python", code=code, times=1, expect="") is None:
            return
    elif await bench.attempt(variant, "probe", name="files", key=key, count=size) is None:
        return
    await _timed(bench, line, size, variant=variant, key=key, code=SMALL, times=times, expect="42\n")


async def _heap(bench, curve, sizes, times, variant):
    keys = await bench.open(variant)
    if not keys:
        return
    line = curve.setdefault(variant, [])
    for size in sizes:
        code = f"kept = [bytes(1000) for _ in range({size * 1000})]"
        if await bench.attempt(variant, "run", key=keys[0], language="python", code=code, times=1, expect="") is None:
            return
        await _timed(bench, line, size, variant=variant, key=keys[0], code=SMALL, times=2 * times, expect="42\n")
    await bench.close(variant, keys)

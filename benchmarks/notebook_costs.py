"""What notebook features cost in a session: the first use of IPython, a figure, and memory before the first use.

    python benchmarks/notebook_costs.py [--backend docker|bubblewrap] [--python PATH] [--rounds 7]

Each round takes a new session. The times are processor time of the interpreter, so that other work on the machine counts
little; a figure's time is compared with that of `savefig` into memory in the same session, with the same settings. Prints the
medians, the least and the most.
"""

import argparse
import asyncio
import statistics

from codeact_sandbox import AsyncSandbox

MEMORY = """
import re
with open('/proc/self/smaps_rollup') as file:
    found = dict(re.findall(r'(\\w+): +(\\d+) kB', file.read()))
print(found['Rss'], int(found['Private_Clean']) + int(found['Private_Dirty']))
"""
CLOCK = "__import__('time').process_time()"
PLAIN = "1 + 1"
IPYTHON = "%cd ."
PLOT = "plt.figure(); plt.plot([1, 3, 2]); plt.title('figure'); None"
SAVE = """
import io
plt.gcf().canvas.print_figure(io.BytesIO(), format='png', bbox_inches='tight', dpi=plt.gcf().dpi)
plt.close()
"""


async def one_round(options, figures):
    """Return the figures of one new session by name: kB and milliseconds."""
    async with AsyncSandbox(mode="session", **options) as box:

        async def run(code):
            result = await box.run(code)
            assert result.outcome == "ok", result.output
            return result

        async def ms(code):
            before = (await run(CLOCK)).value
            await run(code)
            return 1000 * ((await run(CLOCK)).value - before)

        resident, private = map(int, (await run(MEMORY)).output.split())
        found = {"resident memory before first use, kB": resident, "private memory before first use, kB": private}
        plain = [await ms(PLAIN) for _ in range(20)]
        found["plain block, ms"] = statistics.median(plain)
        if not figures:
            return found
        found["first use of IPython, ms"] = await ms(IPYTHON)
        found["later use of IPython, ms"] = statistics.median([await ms(IPYTHON) for _ in range(5)])
        await run("import matplotlib.pyplot as plt")
        for code in (PLOT, f"plt.ioff(); {PLOT}", SAVE, "plt.ion(); plt.close('all')"):
            await run(code)  # what matplotlib does once
        shown, saved = [], []
        for _ in range(7):
            shown.append(await ms(PLOT))
            # Both in one block, so that no figure is open at its end.
            saved.append(await ms(PLOT + SAVE))
        found["block that shows a figure, ms"] = statistics.median(shown)
        found["block that saves it itself, ms"] = statistics.median(saved)
        found["figure beyond savefig, ms"] = statistics.median(a - b for a, b in zip(shown, saved, strict=True))
        return found


async def main(arguments):
    options = {"backend": arguments.backend, **({"python": arguments.python} if arguments.python else {})}
    rounds = [await one_round(options, not arguments.plain) for _ in range(arguments.rounds)]
    for name in rounds[0]:
        values = [each[name] for each in rounds]
        print(f"{name}: {statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=["docker", "bubblewrap"], default="docker")
    parser.add_argument("--python", help="bubblewrap's interpreter")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--plain", action="store_true", help="only plain blocks and memory")
    asyncio.run(main(parser.parse_args()))

"""What a figure costs beyond its own `savefig`: run it with `python -m benchmarks.figures`."""

from __future__ import annotations

import argparse
import asyncio
from statistics import median

from codeact_sandbox import AsyncSandbox

ROUNDS = 15
PLOT = "figure, axes = plt.subplots()\nfor n in range(5): axes.plot(numbers * n)\n"
SAVE = "import io\nplt.savefig(io.BytesIO(), format='png', bbox_inches='tight')\nplt.close()\n"
SHOW = "plt.show()\n"


async def measure(backend: str) -> None:
    """Print the medians of a block that draws and saves a figure, and of one that shows it instead."""
    async with AsyncSandbox(backend=backend, mode="session", timeout=60) as box:
        await box.run(
            "import matplotlib.pyplot as plt, numpy\nnumbers = numpy.arange(50)\n" + PLOT + SAVE + PLOT + SHOW
        )
        taken: dict[str, list[float]] = {SAVE: [], SHOW: []}
        loop = asyncio.get_running_loop()
        for _ in range(ROUNDS):
            for end, times in taken.items():
                began = loop.time()
                result = await box.run(PLOT + end)
                times.append((loop.time() - began) * 1000)
                assert result.exit_code == 0, result
                assert len(result.displays) == (end == SHOW)
    saved, shown = median(taken[SAVE]), median(taken[SHOW])
    print(
        f"{backend}: a block that saves a figure {saved:.0f} ms, one that shows it {shown:.0f} ms: {shown - saved:+.0f} ms"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="docker", choices=["docker", "bubblewrap"])
    asyncio.run(measure(parser.parse_args().backend))

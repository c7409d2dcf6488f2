"""What telemetry costs: a plain block and a call of a host tool without it, without an SDK, and with spans that are kept.

    python benchmarks/telemetry.py

It needs bubblewrap and the package opentelemetry-sdk, and takes half a minute. Measured is the processor time of this process,
without that of the sandbox: it says what telemetry adds, also on a busy machine. The variants take turns.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from autogen_codeact.telemetry import instrument
from autogen_codeact.telemetry.instrumentation import Instrumentation
from codeact_sandbox import AsyncSandbox

ROUNDS = 40
BLOCKS = 25
CALLS = 20
IMPORTS = ("codeact_sandbox", "autogen_codeact.teams.team", "autogen_codeact.telemetry")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def provider() -> tuple[TracerProvider, InMemorySpanExporter]:
    """Make a provider that keeps its spans in memory."""
    made, exporter = TracerProvider(), InMemorySpanExporter()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made, exporter


async def seconds(box: AsyncSandbox, code: str, count: int) -> float:
    """Return the processor time that a block takes on the host, on average."""
    began = time.process_time()
    for _ in range(count):
        await box.run(code)
    return (time.process_time() - began) / count


async def measure() -> None:
    """Print the times of all variants."""
    kept, exporter = provider()
    calls = f"for i in range({CALLS}): add(i, 1)"
    times: dict[str, list[tuple[float, float]]] = {}
    async with AsyncSandbox("bubblewrap", tools=[add]) as box:
        await seconds(box, calls, 20)
        for _ in range(ROUNDS):
            for name in ("off", "off again", "on, without an SDK", "on, spans in memory", "on, with content"):
                on: Instrumentation | None = None
                if name.startswith("on"):
                    chosen = None if "without" in name else kept
                    on = instrument(box, tracer_provider=chosen, content="content" in name)
                plain = await seconds(box, "1", BLOCKS)
                tools = await seconds(box, calls, 1) / CALLS
                if on is not None:
                    on.uninstrument()
                exporter.clear()
                times.setdefault(name, []).append((plain, tools))
    print(f"{'':22} {'block':>10} {'host call':>10}   processor time of the host in ms, median of {ROUNDS} rounds")
    for name, found in times.items():
        plain, tools = (statistics.median(each) * 1000 for each in zip(*found, strict=True))
        print(f"{name:22} {plain:10.3f} {tools:10.3f}")


def imported() -> None:
    """Print which imports bring OpenTelemetry's API; AutoGen's core does that by itself."""
    for module in IMPORTS:
        program = f"import sys, {module}; print(sum(name.startswith('opentelemetry') for name in sys.modules))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        print(f"import {module}: {done.stdout.strip()} modules of OpenTelemetry")


if __name__ == "__main__":
    asyncio.run(measure())
    imported()

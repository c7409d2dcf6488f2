"""Measure how many small tasks a live model solves with each library's agents. An hour on a quiet machine.

    python benchmarks/live.py                       # the small model of `--model local`; writes a part of docs/benchmarks.md
    python benchmarks/live.py --tasks 6 --half all  # a few, to check that it works; writes no page
    python benchmarks/live.py --url URL --model NAME --key-env VAR   # any other model
    python benchmarks/live.py --read A.jsonl B.jsonl --runs FOLDER   # the table of earlier measurements, and their traces as runs
    codeact view FOLDER                                              # looks at the traces

The prompts and the loop were tuned on the tasks with even numbers; the page reports those with odd numbers.
Needs the sandbox image, bubblewrap, and a package registry for the other libraries.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

from live.proxy import Proxy
from live.report import ratio, table
from live.runs import write_runs
from live.solvers import SOLVERS
from live.tasks import is_in_outputs, is_right, make_tasks
from sidebyside.environments import WHERE, Missing, python_of

from autogen_codeact.local_models.server import ModelServer
from autogen_codeact.local_models.weights import fetched_weights
from codeact_sandbox.types.options import DEFAULT_IMAGE

REQUIREMENTS = {
    "ours": (),
    "autogen": ("autogen-agentchat", "autogen-ext[docker,openai]"),
    "smol": ("smolagents[openai]",),
    "llama": ("llama-index-core", "llama-index-llms-openai-like"),
    "pydantic": ("pydantic-ai-slim[openai]", "pydantic-ai-harness[code-mode]"),
}
NEEDS_TOOL_CALLS = ("pydantic",)
"""Libraries whose code comes in a tool call, for which the small model has no format: its template leaves tools out."""
TASK_TIMEOUT_S = 180
MAX_TOKENS = 256
CONTEXT = 8192


class Solver:
    """A process with one library's agent; it is started again after a task that hung."""

    def __init__(self, name, url, model, small):
        self.small = small
        self.command = [
            python_of(f"live-{SOLVERS[name]}", REQUIREMENTS[SOLVERS[name]]),
            "-m",
            "live.solvers",
            name,
            url,
            model,
        ]
        self.process = None

    def solve(self, task):
        """Return what the agent answered, or None if it took too long."""
        if self.process is None:
            more = {"BENCH_IMAGE": DEFAULT_IMAGE, "BENCH_SMALL": "1" if self.small else ""}
            environment = os.environ | more | {"PYTHONPATH": str(Path(__file__).parent)}
            with (WHERE / "live.log").open("ab") as log:
                self.process = subprocess.Popen(
                    self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
                )
        self.process.stdin.write(task.to_json() + "\n")
        self.process.stdin.flush()
        lines = queue.Queue()
        threading.Thread(target=lambda: lines.put(self.process.stdout.readline()), daemon=True).start()
        try:
            return json.loads(lines.get(timeout=TASK_TIMEOUT_S))
        except (queue.Empty, ValueError):
            self.close()
            return None

    def close(self):
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def measure(options, out):
    """Solve all tasks with each library in turn, and write a line for each."""
    numbered = list(enumerate(make_tasks(options.tasks)))[options.start :]
    tasks = [task for number, task in numbered if _wanted(number, options.half)]
    server = None
    if options.url is None:
        server = ModelServer(fetched_weights(print), CONTEXT)
        address, model = server.address(print), server.path.stem
    else:
        address, model = argparse.Namespace(url=options.url, key=os.environ.get(options.key_env, "none")), options.model
    proxy = Proxy(address.url, address.key, MAX_TOKENS)
    solvers = {}
    for name in options.only or [each for each in SOLVERS if options.url or SOLVERS[each] not in NEEDS_TOOL_CALLS]:
        try:
            solvers[name] = Solver(name, proxy.url, model, server is not None)
        except Missing as missing:
            print(f"{name}: {missing}", file=sys.stderr)
    with out.open("w") as file:
        for task in tasks:
            for name, solver in solvers.items():
                row = score(task, name, solver.solve(task), proxy.take())
                print(json.dumps(row), file=file, flush=True)
                print(f"{task.name:14} {name:18} {row['verdict']:9} {row['seconds']:6.1f} s", flush=True)
    for solver in solvers.values():
        solver.close()
    if server is not None:
        server.stop()


def _wanted(number, half):
    # The six kinds take turns, so each half has all of them.
    return half == "all" or (number // 6) % 2 == (half == "report")


def score(task, name, answer, trace):
    """Return a row: what the agent said, whether that is right, what it cost."""
    usage = {kind: sum(call["usage"][kind] for call in trace) for kind in ("prompt_tokens", "completion_tokens")}
    row = {"task": task.name, "kind": task.kind, "library": name, "expected": task.expected, "trace": trace} | usage
    if answer is None:
        return row | {"verdict": "hung", "seen": False, "seconds": float(TASK_TIMEOUT_S)}
    verdict = "error" if answer["error"] else "right" if is_right(answer["text"], task.expected) else "wrong"
    return row | answer | {"verdict": verdict, "seen": is_in_outputs(answer["outputs"], task.expected)}


def main():
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=120)
    parser.add_argument("--start", type=int, default=0, help="leave out the tasks before this one")
    parser.add_argument("--half", choices=["tune", "report", "all"], default="report")
    parser.add_argument("--only", action="append", choices=list(SOLVERS))
    parser.add_argument("--url")
    parser.add_argument("--model", default="local")
    parser.add_argument("--key-env", default="OPENAI_API_KEY")
    parser.add_argument("--out", type=Path, default=WHERE / "live.jsonl")
    parser.add_argument("--read", type=Path, nargs="+", help="measure nothing, and read what was written before")
    parser.add_argument("--runs", type=Path, help="folder for the traces")
    options = parser.parse_args()
    WHERE.mkdir(exist_ok=True)
    if not options.read:
        measure(options, options.out)
    rows = [json.loads(line) for file in options.read or [options.out] for line in file.open()]
    print(table(rows))
    own = [name for name in SOLVERS if SOLVERS[name] == "ours"]
    names = list(dict.fromkeys(row["library"] for row in rows))
    for name, other in ((name, other) for name in names if name in own for other in names if other not in own):
        print(ratio(rows, name, other))
    if options.runs:
        write_runs(rows, options.runs)


if __name__ == "__main__":
    main()

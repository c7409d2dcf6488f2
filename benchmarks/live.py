"""Measure how many small tasks a live model solves with each library's agents, through any OpenAI-compatible server.

    python benchmarks/live.py --url http://localhost:11434/v1 --model NAME      # all tasks: an hour on a quiet machine
    python benchmarks/live.py --url URL --model NAME --key-env VAR --tasks 6    # a few, with a key
    python benchmarks/live.py --read A.jsonl B.jsonl --runs FOLDER   # the table of earlier measurements, and their traces as runs
    codeact view FOLDER                                              # looks at the traces

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

from codeact_sandbox.types.options import DEFAULT_IMAGE

REQUIREMENTS = {
    "ours": (),
    "autogen": ("autogen-agentchat", "autogen-ext[docker,openai]"),
    "smol": ("smolagents[openai]",),
    "llama": ("llama-index-core", "llama-index-llms-openai-like"),
    "pydantic": ("pydantic-ai-slim[openai]", "pydantic-ai-harness[code-mode]"),
}
TASK_TIMEOUT_S = 180
MAX_TOKENS = 256


class Solver:
    """A process with one library's agent; it is started again after a task that hung."""

    def __init__(self, name, url, model):
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
            environment = os.environ | {"BENCH_IMAGE": DEFAULT_IMAGE, "PYTHONPATH": str(Path(__file__).parent)}
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
    proxy = Proxy(options.url, os.environ.get(options.key_env, "none"), MAX_TOKENS)
    solvers = {}
    for name in options.only or SOLVERS:
        try:
            solvers[name] = Solver(name, proxy.url, options.model)
        except Missing as missing:
            print(f"{name}: {missing}", file=sys.stderr)
    with out.open("w") as file:
        for task in make_tasks(options.tasks):
            for name, solver in solvers.items():
                row = score(task, name, solver.solve(task), proxy.take())
                print(json.dumps(row), file=file, flush=True)
                print(f"{task.name:14} {name:18} {row['verdict']:9} {row['seconds']:6.1f} s", flush=True)
    for solver in solvers.values():
        solver.close()


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
    parser.add_argument("--only", action="append", choices=list(SOLVERS))
    parser.add_argument("--url", help="of a server with the OpenAI API")
    parser.add_argument("--model")
    parser.add_argument("--key-env", default="OPENAI_API_KEY")
    parser.add_argument("--out", type=Path, default=WHERE / "live.jsonl")
    parser.add_argument("--read", type=Path, nargs="+", help="measure nothing, and read what was written before")
    parser.add_argument("--runs", type=Path, help="folder for the traces")
    options = parser.parse_args()
    WHERE.mkdir(exist_ok=True)
    if not options.read:
        if not (options.url and options.model):
            parser.error("--url and --model are missing")
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

"""Kills runs with SIGKILL at random moments, continues them, and checks that nothing was lost or done twice.

    python benchmarks/resume_soak.py [--kills 240] [--backend bubblewrap docker] [--kind agent team] [--seed 1]

Each run has 12 steps, each with a call to a host tool that counts its calls outside the run. Its process is killed again and
again, and continued each time, until it ends by itself. The kills are shared out evenly among the backends and kinds.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests import processes
from tests.openai_server import OpenAIServer
from tests.runs.example_run import counted, expected, model

ROOT = Path(__file__).parents[1]
STEPS = 12
MAX_KILLS_PER_RUN = 8
PROGRAM = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.runs.killed_run import begin; begin()"


def events_of(folder: Path) -> list[dict]:
    """Read the whole lines of a log."""
    data = (folder / "events.jsonl").read_bytes()
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def problems(folder: Path, answer: str) -> list[str]:
    """Return what is wrong with a run that has ended."""
    found = [] if answer.strip() == expected(STEPS) else [f"the answer is {answer.strip()!r}"]
    events, made = events_of(folder), Counter(counted(folder.parent / "calls"))
    found += [f"the call {number} was made {count} times" for number, count in made.items() if count > 1]
    ended = {(e["agent"], e["block"], e["call"]) for e in events if e["type"] == "host_call_finished"}
    started = [e for e in events if e["type"] == "host_call_started"]
    under_way = {e["arguments"]["number"] for e in started if (e["agent"], e["block"], e["call"]) not in ended}
    found += [f"the call {n} was not made" for n in range(1, STEPS + 1) if n not in made and n not in under_way]
    if [event["seq"] for event in events] != list(range(1, len(events) + 1)):
        found.append("lines of the log are missing or doubled")
    return found


class Soak:
    """Runs of one kind on one backend.

    Args:
        backend: `bubblewrap` or `docker`.
        kind: `agent` or `team`.
        seed: Determines when to kill.
    """

    def __init__(self, backend: str, kind: str, seed: int) -> None:
        self.runs = 0
        self.places: list[str] = []
        """The last event in the log at each kill."""
        self.wrong: list[str] = []
        self._backend, self._kind = backend, kind
        self._chance = random.Random(seed)
        self._seconds = [4.0]

    def run(self, kills: int) -> None:
        """Make runs until there were so many kills."""
        while len(self.places) < kills:
            self.runs += 1
            with tempfile.TemporaryDirectory() as name, ModelServer(self._kind) as server:
                folder = Path(name) / "run"
                (folder.parent / "work").mkdir()
                for left in range(min(MAX_KILLS_PER_RUN, kills - len(self.places)), -1, -1):
                    if self._ended(folder, server.base_url, killed=left > 0):
                        break

    def _ended(self, folder: Path, server: str, *, killed: bool) -> bool:
        """Begin or continue a run, perhaps kill it, and return whether it has ended by itself."""
        began = time.monotonic()
        arguments = ["-c", PROGRAM, str(folder), server, self._backend, self._kind]
        with processes.start(arguments, env=os.environ, stdin=subprocess.DEVNULL) as process:
            try:
                process.wait(self._chance.uniform(0.3, 1.3 * statistics.median(self._seconds)) if killed else 120)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):  # it has ended in between
                    process.kill()
            out, err = process.communicate(timeout=20)
        what = f"{self._backend} {self._kind} run {self.runs}"
        if process.returncode == 0:
            self._seconds.append(time.monotonic() - began)
            self.wrong += [f"{what}: {each}" for each in problems(folder, out)]
        elif process.returncode == -signal.SIGKILL and killed:
            events = self._note(folder)
            if not events or events[-1]["type"] != "run_finished":
                return False
            # Its work was done; only its sandbox was still there.
            contents = [event["message"].get("content") for event in events if event["type"] == "message"]
            self.wrong += [f"{what}: {each}" for each in problems(folder, contents[-1])]
        else:
            self.wrong.append(f"{what} ended with {process.returncode}: {err[-600:]}")
        return True

    def _note(self, folder: Path) -> list[dict]:
        events = events_of(folder) if (folder / "events.jsonl").exists() else []
        self.places.append(events[-1]["type"] if events else "nothing")
        if not any(event["type"] == "boundary" for event in events) and folder.exists():
            for file in folder.iterdir():  # there is nothing to continue
                file.unlink()
        return events


class ModelServer(OpenAIServer):
    """The model's server."""

    def __init__(self, kind: str) -> None:
        super().__init__(model(STEPS, per_turn=4 if kind == "team" else 99))

    def __enter__(self) -> OpenAIServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def main() -> int:
    """Print what happened; return 1 if something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=240)
    parser.add_argument("--backend", nargs="+", choices=["bubblewrap", "docker"], default=["bubblewrap", "docker"])
    parser.add_argument("--kind", nargs="+", choices=["agent", "team"], default=["agent", "team"])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    pairs = list(itertools.product(options.backend, options.kind))
    failed = False
    for number, (backend, kind) in enumerate(pairs):
        kills = options.kills * (number + 1) // len(pairs) - options.kills * number // len(pairs)
        soak = Soak(backend, kind, options.seed + number)
        soak.run(kills)
        shown = ", ".join(f"{place} {count}" for place, count in Counter(soak.places).most_common())
        print(f"{backend} {kind}: {kills} kills in {soak.runs} runs, {len(soak.wrong)} problems; last event: {shown}")
        for each in soak.wrong:
            print(f"  {each}")
        failed = failed or bool(soak.wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

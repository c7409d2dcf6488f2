"""How many requests to a model acting in code would have saved: simulated, on recorded sessions of tool calling.

    python benchmarks/tau_bench_turns.py [--data ../shared/data] [--sessions 200] [--sandbox docker|bubblewrap]

The sessions are recorded: a model called one tool at a time, each call in a request of its own. Here the calls of each unbroken
run are written as blocks of Python, run in the real sandbox, and answered by a host tool with the recorded results. What is
*simulated* is that a model would have written these blocks. A call that failed ends its block in both countings:

- every run: whatever comes between two messages to the user is one block. Nobody does better.
- known before: a call stands in a block only where everything in its arguments had been in the conversation before the block
  began, so that the model could have written it without seeing the results of the calls before it.
"""

import argparse
import asyncio
import gzip
import json
from dataclasses import dataclass
from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_core.tools import StaticWorkbench, TextResultContent, ToolResult, ToolSchema

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor

SANDBOXES = {"docker": DockerCommandLineCodeExecutor, "bubblewrap": BubblewrapCommandLineCodeExecutor}


@dataclass
class Call:
    """A recorded call: what was said before its run, its name, arguments and result."""

    name: str
    arguments: dict
    result: str

    @property
    def failed(self):
        return self.result.startswith("Error")


def calls_of(message):
    """The calls that a message asks for."""
    requested = [each["function"] for each in message.get("tool_calls") or ()]
    return [Call(each["name"], json.loads(each["arguments"]), "") for each in requested]


def read_runs(session):
    """The unbroken runs of calls of a session, each with all that had been said before it."""
    said, runs, run = [], [], []
    for message in session["traj"]:
        calls = calls_of(message)
        run += calls
        if message["role"] == "tool":
            run[-1].result = message["content"]
        elif not calls:
            if run:
                runs.append((said, run))
                said, run = [*said, *(call.result for call in run)], []
            said = [*said, message["content"] or ""]
    return [*runs, (said, run)] if run else runs


def values_in(thing):
    """The words and numbers in a call's arguments."""
    if isinstance(thing, dict):
        thing = list(thing.values())
    if isinstance(thing, list):
        return [value for each in thing for value in values_in(each)]
    return [] if isinstance(thing, bool) or thing is None else [str(thing)]


def blocks_of(said, run, known_before):
    """Cut a run into blocks."""
    blocks, seen = [[]], "\n".join(said)
    for call in run:
        known = all(value in seen for value in values_in(call.arguments))
        if blocks[-1] and (blocks[-1][-1].failed or (known_before and not known)):
            seen = "\n".join([seen, *(each.result for each in blocks[-1])])
            blocks.append([])
        blocks[-1].append(call)
    return blocks


class Recorded(StaticWorkbench):
    """The recorded tools; they answer from the record, in its order."""

    def __init__(self, calls):
        super().__init__([])
        names = {}
        for call in calls:
            names.setdefault(call.name, {}).update(dict.fromkeys(call.arguments))
        self.schemas = [
            ToolSchema(name=name, parameters={"type": "object", "properties": {key: {} for key in properties}})
            for name, properties in names.items()
        ]
        self.answers = []

    async def list_tools(self):
        return self.schemas

    async def call_tool(self, name, arguments=None, cancellation_token=None, call_id=None):
        call = self.answers.pop(0)
        return ToolResult(name=name, result=[TextResultContent(content=call.result)], is_error=call.failed)


async def replay(executor, tools, block):
    """Run a block; what reaches the host and what comes back must be what was recorded."""
    tools.answers = list(block)
    code = "\n".join(f"{call.name}(**{call.arguments!r})" for call in block)
    result = await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())
    got = [(call.name, call.arguments, call.outcome, call.result) for call in result.tool_calls]
    expected = [
        (call.name, call.arguments, *(("error", None) if call.failed else ("ok", call.result))) for call in block
    ]
    if got != expected:
        raise SystemExit(f"expected {expected}, got {got}: {result}")


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[1] / "../shared/data")
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--sandbox", choices=SANDBOXES, default="docker")
    options = parser.parse_args()
    with gzip.open(options.data / "tau-bench/gpt-4o-airline.json.gz", "rt") as file:
        sessions = json.load(file)[: options.sessions]
    runs = [run for session in sessions for run in read_runs(session)]
    cut = {
        name: [block for said, run in runs for block in blocks_of(said, run, known_before)]
        for name, known_before in (("every run", False), ("known before", True))
    }
    calls = [call for _, run in runs for call in run]
    tools = Recorded(calls)
    async with SANDBOXES[options.sandbox](mode="session", checkpoint=False, tools=[tools]) as executor:
        for block in cut["every run"]:
            await replay(executor, tools, block)
    report(sessions, runs, calls, cut)


def report(sessions, runs, calls, cut):
    """Print a table."""
    words = sum(
        message["role"] == "assistant" and not message.get("tool_calls") for s in sessions for message in s["traj"]
    )
    before = len(calls) + words
    print(
        f"{len(sessions)} recorded sessions, {len(runs)} runs of {len(calls)} calls; all reached the host as recorded\n"
    )
    print("| simulated | requests that make calls | requests in all | saved |")
    print("|---|---|---|---|")
    print(f"| one call at a time (recorded) | {len(calls)} | {before} | |")
    for name, blocks in cut.items():
        saved = len(calls) - len(blocks)
        print(f"| in code, {name} | {len(blocks)} | {before - saved} | {saved} ({saved / before:.0%}) |")


if __name__ == "__main__":
    asyncio.run(main())

"""Continuing a run with large results of host tools in its log."""

import re
from pathlib import Path

import pytest

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.runs import resume
from autogen_codeact.runs.plan import RunNotResumableError
from tests.abuse.test_h_tool_values import numbers, text
from tests.agents.codeact import python
from tests.agents.support import model_answer, scripted
from tests.runs.support import cut, lines_of, run


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("call", "count", "continues"), [("text", 3, True), ("text", 16, False), ("numbers", 1, False)]
)
async def test_run_with_large_results_continues_or_is_refused_in_one_line(
    bubblewrap: None, tmp_path: Path, call: str, count: int, continues: bool
) -> None:
    code = python(f"results = [{call}() for n in range({count})]")
    whole = tmp_path / "whole"
    async with BubblewrapCommandLineCodeExecutor(mode="session", timeout=60) as executor:
        client = scripted(model_answer(code), model_answer("Done."))
        agent = CodeActAgent("actor", executor, model_client=client, tools=[numbers, text])
        await run(agent, whole)
    for last in ("host_call_finished", "block_finished"):  # where the process of the run ended
        end = max(number for number, line in enumerate(lines_of(whole), 1) if f'"{last}"'.encode() in line)
        folder = cut(whole, tmp_path / last, end)
        async with BubblewrapCommandLineCodeExecutor(mode="session", timeout=60) as executor:
            agent = CodeActAgent("actor", executor, model_client=scripted(model_answer("Done.")), tools=[numbers, text])
            if continues or (call, last) == ("text", "host_call_finished"):
                assert (await resume(folder, agent=agent)).messages[-1].to_text() == "Done."
                continue
            with pytest.raises(RunNotResumableError) as refused:
                await resume(folder, agent=agent)
            assert re.fullmatch(
                re.escape(f"{folder} can't be continued: its log is damaged in line ")
                + r"\d+ \(files/[0-9a-f]{64} would take too much memory: [\d,]+ bytes are left for it\)\.",
                str(refused.value),
            )

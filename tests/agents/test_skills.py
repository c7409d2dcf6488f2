"""Skills of agents: what the model is told, how its code uses them, and where they can be given."""

from pathlib import Path

import pytest

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.agents.codeact_prompt import TASK, system_message
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.teams.loading import check_untrusted
from tests.agents.codeact import python
from tests.agents.support import received_by, scripted

SKILLS = Path(__file__).parents[2] / "samples" / "skills"
SHOWN = (
    "Skills: folders with instructions, read-only. Before a task that a skill is for, print its SKILL.md, and follow it; its "
    "paths are relative to its folder, and its scripts run here, in code:\n"
    "- /skills/invoice-totals: Adds up invoices by this company's rules for rounding and discounts. Use it for every total of "
    "an invoice."
)
CODE = """
import subprocess, sys
print(open("/skills/invoice-totals/SKILL.md").read().splitlines()[-1])
print(subprocess.check_output([sys.executable, "/skills/invoice-totals/scripts/total.py", "1000", "0.015"], text=True))
"""


@pytest.fixture
def executor(bubblewrap: None) -> SandboxCodeExecutor:
    """An executor with skills, not started."""
    return BubblewrapCommandLineCodeExecutor(mode="session", skills=[SKILLS])


async def test_the_model_is_told_of_skills_and_its_code_runs_them(executor: SandboxCodeExecutor) -> None:
    client = scripted(python(CODE), "Done.")
    agent = CodeActAgent("a", executor, model_client=client, describe_environment=False)
    async with executor:
        await agent.run(task="Go.")
    first, *_, shown = received_by(client)[1]
    plain = system_message(TASK, style="markdown", languages=["python", "sh", "bash"])
    assert first.content == plain.replace("\n\nWhen the task is done", f"\n\n{SHOWN}\n\nWhen the task is done")
    assert "Never round single lines.\nTotal: 980.01\n" in str(shown.content)


async def test_skills_come_with_a_config_and_not_with_an_untrusted_one(bubblewrap: None) -> None:
    made = BubblewrapCommandLineCodeExecutor(mode="session", skills=[SKILLS])
    config = CodeActAgent("a", made, model_client=scripted()).dump_component()
    loaded = CodeActAgent.load_component(config)
    assert [each.name for each in loaded.code_executor.skills] == ["invoice-totals"]  # type: ignore[attr-defined]
    with pytest.raises(
        ValueError,
        match=r"config\.code_executor\.config\.skills: is not a field that an untrusted configuration may set",
    ):
        check_untrusted(CodeActAgent("a", made, model_client=scripted()).dump_component().model_dump())

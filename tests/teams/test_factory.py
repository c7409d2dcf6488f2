"""The ready-made team: what is run, who is asked, what ends it."""

import pytest
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_core.tools import StaticWorkbench

from autogen_codeact.agents.code_executor_agent import CODE_OF_OTHERS
from autogen_codeact.agents.tool_prompt import TOOLS
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.teams import Budget, coder_executor_team
from autogen_codeact.teams.factory import CODER_MESSAGE, REVIEWER_MESSAGE

from .support import PRINT_42, ScriptedModel, texts_of

TRICKY = "```python\nprint('TERMINATE')\n```"


async def test_a_second_task_begins_with_the_coder(executor):
    model = ScriptedModel([PRINT_42, "It is 42. TERMINATE", PRINT_42, "Still 42. TERMINATE"])
    team = coder_executor_team(model, executor)
    await team.run(task="six times seven")
    result = await team.run(task="once more")
    assert texts_of(result) == [
        ("user", "once more"),
        ("coder", PRINT_42),
        ("executor", "42\n"),
        ("coder", "Still 42. TERMINATE"),
    ]
    assert model.told[3] == [
        ("system", CODER_MESSAGE),
        ("user", "six times seven"),
        ("assistant", PRINT_42),
        ("executor", "42\n"),
        ("assistant", "It is 42. TERMINATE"),
        ("user", "once more"),
        ("assistant", PRINT_42),
        ("executor", "42\n"),
    ]


async def test_final_word_in_code_and_in_output_does_not_end_the_team(executor):
    model = ScriptedModel([f"{TRICKY}\nTERMINATE", "It said so. TERMINATE"])
    result = await coder_executor_team(model, executor).run(task="say TERMINATE")
    assert texts_of(result)[1:] == [
        ("coder", f"{TRICKY}\nTERMINATE"),
        ("executor", "TERMINATE\n"),
        ("coder", "It said so. TERMINATE"),
    ]


async def test_only_code_that_the_reviewer_sends_is_run(executor, tmp_path):
    rejected = "```python\nopen('made', 'w')\n```"
    coder = ScriptedModel([rejected, PRINT_42, "It is 42. TERMINATE"])
    reviewer = ScriptedModel(["Don't write files.", PRINT_42])
    result = await coder_executor_team(coder, executor, reviewer_model_client=reviewer).run(task="six times seven")
    assert texts_of(result)[1:] == [
        ("coder", rejected),
        ("reviewer", "Don't write files."),
        ("executor", CODE_OF_OTHERS.format(sources="reviewer")),
        ("coder", PRINT_42),
        ("reviewer", PRINT_42),
        ("executor", "42\n"),
        ("coder", "It is 42. TERMINATE"),
    ]
    assert not (tmp_path / "made").exists()
    assert reviewer.told[0] == [("system", REVIEWER_MESSAGE), ("user", "six times seven"), ("coder", rejected)]


async def test_code_in_the_task_is_never_run(executor, tmp_path):
    task = "What does this do?\n```python\nopen('made', 'w')\n```"
    model = ScriptedModel(["It makes a file.", "It makes a file. TERMINATE"])
    result = await coder_executor_team(model, executor).run(task=task)
    assert texts_of(result)[2] == ("executor", CODE_OF_OTHERS.format(sources="coder"))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("kwargs", "reason"),
    [
        ({"max_messages": 4}, "Maximum number of messages 4 reached, current message count: 4"),
        ({"max_turns": 3}, "Maximum number of turns 3 reached."),
        ({"budget": Budget(max_turns=3)}, "The budget of 3 turns is used up."),
        ({"termination_condition": MaxMessageTermination(4)}, "Maximum number of messages 4 reached"),
    ],
)
async def test_a_coder_that_never_ends_is_ended(executor, kwargs, reason):
    model = ScriptedModel([PRINT_42] * 9)
    result = await coder_executor_team(model, executor, **kwargs).run(task="go")
    assert len(result.messages) == 4
    assert result.stop_reason is not None
    assert result.stop_reason.startswith(reason)


async def test_code_calls_tools_that_are_described_to_coder_and_reviewer(bubblewrap):
    def price(item: str) -> float:
        """Ask the shop."""
        return {"tea": 4.5}[item]

    def stock(item: str) -> int:
        return 3

    code = "```python\nprint(price('tea') * stock('tea'))\n```"
    model = ScriptedModel([code, code, "13.50. TERMINATE"])
    async with BubblewrapCommandLineCodeExecutor(tools=[stock]) as executor:
        team = coder_executor_team(model, executor, reviewer=True, tools=[price])
        result = await team.run(task="What is our tea worth?")
    assert texts_of(result)[3] == ("executor", "13.5\n")
    stubs = 'def stock(item: str) -> int: ...\n\ndef price(item: str) -> float:\n    """Ask the shop."""'
    shown = f"\n\n{TOOLS}\n```python\n{stubs}\n```"
    assert [told[0] for told in model.told[:2]] == [
        ("system", CODER_MESSAGE + shown),
        ("system", REVIEWER_MESSAGE + shown),
    ]


def test_tools_of_a_workbench_must_be_known(bubblewrap):
    executor = BubblewrapCommandLineCodeExecutor(tools=[StaticWorkbench([])])
    with pytest.raises(ValueError, match="give it to the executor, and start that before you make the team"):
        coder_executor_team(ScriptedModel([]), executor)

"""Ready-made teams."""

from __future__ import annotations

from collections.abc import Sequence

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TerminationCondition
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents import ApprovalFuncType, CodeExecutorAgent
from autogen_codeact.agents.arguments import check_parts
from autogen_codeact.agents.budget import Budget
from autogen_codeact.agents.tool_prompt import describe_tools
from autogen_codeact.executors.capabilities import capabilities_of
from autogen_codeact.executors.tools.host_tools import ToolLike
from autogen_codeact.teams.team import Team
from autogen_codeact.teams.termination import FinalWordTermination
from codeact_sandbox.tools.approval import ApproveTool
from codeact_sandbox.types.skills import describe_skills

CODER_MESSAGE = """\
You solve the user's task by writing code, which is run for you.

Put all code of a message into one fenced block labelled with its language, whole and ready to run as it is. Print \
whatever you need to see: you are shown what the code prints, and nothing else. Then wait for the output.

If the code fails, or its output is not what the task needs, find out why and send the whole code again, corrected. \
Never guess what an output would be.

When the output you were shown solves the task, give the answer in a message without code, and end that message with \
the word TERMINATE. Never use that word in a message with code."""

REVIEWER_MESSAGE = """\
You review code before it is run. Only code that you send is run.

If the coder's code does what the task asks and does no harm, repeat it unchanged in one fenced block labelled with \
its language. If a small correction makes it right, send the whole corrected code instead, and say in a sentence what \
you changed.

If it must not be run, or has to be written anew, send no code block: say what is wrong and what the coder is to do."""

CODER_DESCRIPTION = "Writes the code that solves the task."
REVIEWER_DESCRIPTION = "Reviews the coder's code; only code that passes is run."


def coder_executor_team(
    model_client: ChatCompletionClient,
    code_executor: CodeExecutor,
    *,
    reviewer: bool = False,
    reviewer_model_client: ChatCompletionClient | None = None,
    approval_func: ApprovalFuncType | None = None,
    tools: Sequence[ToolLike] = (),
    approve_tool: ApproveTool | None = None,
    supported_languages: Sequence[str] | None = None,
    coder_system_message: str = CODER_MESSAGE,
    reviewer_system_message: str = REVIEWER_MESSAGE,
    model_client_stream: bool = False,
    stream_output: bool = False,
    termination_condition: TerminationCondition | None = None,
    max_messages: int = 30,
    max_turns: int | None = None,
    budget: Budget | None = None,
) -> Team:
    """Make a team of a coder, a reviewer if wanted, and an executor that runs the code.

    The participants are called `coder`, `reviewer` and `executor`. With a reviewer, the code in the reviewer's messages
    is what runs; without one, the coder's. Code in the task itself is never run.

    Args:
        model_client: The coder's model.
        code_executor: Runs the code; start it before the run and stop it afterwards.
        reviewer: Whether there is a reviewer. Default: only if it has a model of its own.
        reviewer_model_client: The reviewer's model. Default: the coder's.
        approval_func, tools, approve_tool, supported_languages, stream_output: As in `CodeExecutorAgent`. Coder and reviewer are
            told of the tools, too.
        coder_system_message: Instructions for the coder. Default: `CODER_MESSAGE`.
        reviewer_system_message: Instructions for the reviewer. Default: `REVIEWER_MESSAGE`.
        model_client_stream: Whether the models' answers are also yielded in chunks. Default: no.
        termination_condition: Ends the run. Default: the coder ends a message without code with TERMINATE, or
            `max_messages` have been said.
        max_messages: Messages in a run, the task included; only without a `termination_condition`. Default: 30.
        max_turns: Turns in a run. Default: no limit.
        budget: What a run may use. Default: no limit.

    Returns:
        The team.

    Raises:
        TypeError: An argument is something else than it says above.
        ValueError: Tools come from a workbench that does not run yet, so they are unknown.
    """
    writers = [("coder", model_client, CODER_DESCRIPTION, coder_system_message)]
    if reviewer or reviewer_model_client is not None:
        reviewing = reviewer_model_client or model_client
        writers.append(("reviewer", reviewing, REVIEWER_DESCRIPTION, reviewer_system_message))
    for _, client, _, _ in writers:
        check_parts(
            code_executor, client, approval_func=approval_func, tools=tools, supported_languages=supported_languages
        )
    languages = list(supported_languages or CodeExecutorAgent.DEFAULT_SUPPORTED_LANGUAGES)
    runner = CodeExecutorAgent(
        "executor",
        code_executor,
        sources=[writers[-1][0]],
        supported_languages=languages,
        approval_func=approval_func,
        tools=tools,
        approve_tool=approve_tool,
        stream_output=stream_output,
    )
    shown = _tools_of(code_executor)
    participants = [
        AssistantAgent(
            name,
            client,
            description=description,
            system_message=message + shown,
            model_client_stream=model_client_stream,
        )
        for name, client, description, message in writers
    ]
    done = FinalWordTermination("TERMINATE", sources=["coder"], languages=languages)
    return Team(
        [*participants, runner],
        termination_condition=termination_condition or done | MaxMessageTermination(max_messages),
        max_turns=max_turns,
        budget=budget,
        begin_with_first=True,
    )


def _tools_of(executor: CodeExecutor) -> str:
    """Return the description of host tools for coder and reviewer."""
    can = capabilities_of(executor)
    known = can.sandbox.known_tools if can.sandbox is not None else ()
    if known is None:
        raise ValueError(
            "The tools of a workbench are known only when it runs: give it to the executor, and start that before you make "
            "the team."
        )
    parts = ["", describe_skills(getattr(executor, "skills", ())), describe_tools(known)]
    return "\n\n".join(part for number, part in enumerate(parts) if part or (not number and any(parts)))

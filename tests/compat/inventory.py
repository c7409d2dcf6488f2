"""Every upstream example around the two classes: how it runs here, or why it is left out.

`DOCSTRINGS` is checked against the installed packages, so a release with a new example fails a test. `PAGES` names
the examples on AutoGen's documentation pages that run here; the text of those pages is not ours to ship, so `pages/` has
programs in our own words that make the same calls with the same arguments.
"""

import json
from dataclasses import dataclass
from typing import Any

FENCE = "`" * 3


@dataclass(frozen=True)
class Entry:
    """One example.

    Args:
        left_out: Why it does not run here, or empty when it runs.
        replies: What the model says, in order; None takes what the example itself shows that the model said.
        stdin: What the person at the keyboard types.
        prints: What standard output must contain, in this order.
        writes: What each of these must be in standard error (empty: nothing may be written there).
        needs: Modules that this project does not depend on; without them the example is skipped.
        program: File in `pages/`, for an example on a page.
        refused: What the error says on an engine that lacks what the example asks for.
    """

    left_out: str = ""
    replies: tuple[str, ...] | None = ()
    stdin: str = ""
    prints: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    program: str = ""
    refused: str = ""


def code(language: str, *lines: str) -> str:
    """A message of the model with one block of code."""
    return "\n".join([f"{FENCE}{language}", *lines, FENCE])


def ledger(speaker: str, *, done: bool = False) -> str:
    """A progress ledger as Magentic-One asks its model for one."""
    answers: dict[str, Any] = {
        "is_request_satisfied": done,
        "is_in_loop": False,
        "is_progress_being_made": True,
        "next_speaker": speaker,
        "instruction_or_question": "Go on.",
    }
    return json.dumps({key: {"reason": "scripted", "answer": answer} for key, answer in answers.items()})


MAGENTIC_ONE: tuple[str, ...] = (
    "No facts are needed.",
    "The coder writes, the terminal runs.",
    ledger("Coder"),
    code("python", "print('good', 'morning')"),
    ledger("ComputerTerminal"),
    ledger("Coder", done=True),
    "The script greeted you.",
)
MAGENTIC_EXTRA = ("markitdown", "playwright")
NO_CLASS = "uses neither class"
LOCAL_WARNING = "LocalCommandLineCodeExecutor may execute code on the local machine"

DOCSTRINGS: dict[str, Entry] = {
    "CodeExecutorAgent#1": Entry(
        stdin="maybe\ny\n",
        prints=(
            "Code execution approval requested:",
            "print('Hello world')",
            "Please enter 'y' for yes or 'n' for no.",
            "source='code_executor'",
            "content='Hello world\\n'",
        ),
    ),
    "CodeExecutorAgent#2": Entry(
        left_out="needs an engine with a GPU; that it gets as far as asking the engine for one is checked",
        refused="gpu",
    ),
    "CodeExecutorAgent#3": Entry(replies=None),
    "CodeExecutorAgent#4": Entry(replies=None),
    "DockerJupyterCodeExecutor#1": Entry(left_out=NO_CLASS),
    "DockerJupyterCodeExecutor#2": Entry(left_out=NO_CLASS),
    "DockerJupyterCodeExecutor#3": Entry(left_out=NO_CLASS),
    "DockerJupyterCodeExecutor#4": Entry(left_out="needs a network: its server builds a Jupyter image from a registry"),
    "JupyterCodeExecutor#1": Entry(left_out=NO_CLASS),
    "JupyterCodeExecutor#2": Entry(left_out=NO_CLASS),
    "JupyterCodeExecutor#3": Entry(
        needs=("nbclient", "ipykernel"), prints=("source='code_executor'", "content='Hello world\\n'")
    ),
    "MagenticOne#1": Entry(left_out=f"{NO_CLASS} (MagenticOne picks upstream's executor itself)"),
    "MagenticOne#2": Entry(
        needs=MAGENTIC_EXTRA,
        replies=MAGENTIC_ONE,
        stdin="y\n",
        prints=("Code to execute:", "good morning", "The script greeted you."),
    ),
    "MagenticOne#3": Entry(
        needs=MAGENTIC_EXTRA,
        replies=MAGENTIC_ONE,
        stdin="y\n",
        prints=("Code to execute:", "good morning", "The script greeted you."),
    ),
    "PythonCodeExecutionTool#1": Entry(left_out=NO_CLASS),
}

CORE = "core-user-guide"
CHAT = "agentchat-user-guide"

PAGES: dict[str, Entry] = {
    f"{CORE}/components/command-line-code-executors#1": Entry(
        program="command_line_code_executors_1.py",
        prints=("exit code 0, output 'good morning\\n'", "saved in coding: print('good morning')"),
    ),
    f"{CORE}/components/tools#1": Entry(program="tools_1.py", prints=("good morning\n", "container ")),
    f"{CORE}/components/user-defined-functions#5": Entry(program="user_defined_functions_5.py", prints=("42\n",)),
    f"{CHAT}/magentic-one#2": Entry(
        program="magentic_one_2.py",
        replies=MAGENTIC_ONE,
        prints=("good morning", "The script greeted you."),
        writes=(LOCAL_WARNING,),
    ),
    f"{CHAT}/migration-guide (Two-Agent Chat)": Entry(
        program="migration_guide_two_agent_chat.py",
        replies=(code("python", "print('good', 'morning')"), "TERMINATE"),
        prints=("(user)", "(coder)", "(runner)", "good morning", "TERMINATE"),
        writes=(LOCAL_WARNING,),
    ),
}

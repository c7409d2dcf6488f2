"""Every upstream example around the two classes: how it runs here, or why it is left out.

`DOCSTRINGS` is checked against the installed packages, so a release with a new example fails a test.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One example.

    Args:
        left_out: Why it does not run here, or empty when it runs.
        replies: What the model says, in order; None takes what the example itself shows that the model said.
        stdin: What the person at the keyboard types.
        prints: What standard output must contain, in this order.
        refused: What the error says on an engine that lacks what the example asks for.
    """

    left_out: str = ""
    replies: tuple[str, ...] | None = ()
    stdin: str = ""
    prints: tuple[str, ...] = ()
    refused: str = ""


NO_CLASS = "uses neither class"
EXTRA = "needs markitdown and playwright, which this project does not depend on"

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
    "JupyterCodeExecutor#3": Entry(prints=("source='code_executor'", "content='Hello world\\n'")),
    "MagenticOne#1": Entry(left_out=f"{NO_CLASS} (MagenticOne picks upstream's executor itself)"),
    "MagenticOne#2": Entry(left_out=EXTRA),
    "MagenticOne#3": Entry(left_out=EXTRA),
    "PythonCodeExecutionTool#1": Entry(left_out=NO_CLASS),
}

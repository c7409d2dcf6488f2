"""How host tools are described to a model, word for word, and `help(name)` in the sandbox."""

from dataclasses import dataclass
from typing import Any

from autogen_agentchat.messages import CodeExecutionEvent
from autogen_core.models import SystemMessage
from autogen_core.tools import FunctionTool
from pydantic import BaseModel, Field

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.agents.tool_prompt import COMPACT, MANY, MAX_NAMES_CHARS, TOOLS, describe_tools
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.executors.tools.host_tools import HostTools
from codeact_sandbox.types.tool import HostToolProtocol
from tests.agents.codeact import python
from tests.agents.support import received_by, scripted


class Flight(BaseModel):
    """A flight that can be booked."""

    number: str = Field(description="as on the board")
    seats: int = 0


@dataclass
class Passenger:
    name: str
    age: int | None = None


def search(city: str, limit: int = 5) -> list[Flight]:
    """Find flights to a city.

    Args:
        city: Its English name.
        limit: How many at most.
    """
    return [Flight(number=f"{city[:2].upper()}{n}", seats=n) for n in range(limit)]


def reserve(flight: Flight, passenger: Passenger) -> str:
    return f"{passenger.name} on {flight.number}"


def rude(text: str = "```") -> None:
    '''Says """this""" and
    ```
    that.
    '''


def tools(*given: Any) -> tuple[HostToolProtocol, ...]:
    made = HostTools(given).known
    assert made is not None
    return made


def many(count: int, words: str = "Look something up.") -> list[FunctionTool]:
    def lookup(key: str, exact: bool = True) -> str:
        return key

    return [FunctionTool(lookup, f"{words}\n\nAt length: {'x' * 100}", name=f"look_{n}") for n in range(count)]


SHOWN = f'''{TOOLS}
```python
def search(city: str, limit: int = 5) -> list[Flight]:
    """Find flights to a city.

    Args:
        city: Its English name.
        limit: How many at most.

    Flight, a dict: A flight that can be booked.
        number: str  # as on the board
        seats: int = 0
    """

def reserve(flight: Flight, passenger: Passenger) -> str:
    """Flight, a dict: A flight that can be booked.
        number: str  # as on the board
        seats: int = 0

    Passenger, a dict:
        name: str
        age: int | None = None
    """
```'''


def test_signature_docstring_and_types_are_shown() -> None:
    assert describe_tools(tools(search, reserve)) == SHOWN
    assert describe_tools(()) == ""


def test_tool_descriptions_cannot_end_docstring_or_fence() -> None:
    lines = [
        TOOLS,
        "```python",
        "def rude(text: str = ''''') -> None:",
        "    \"\"\"Says '''this''' and",
        "    '''",
        "    that.",
        '    """',
        "```",
    ]
    assert describe_tools(tools(rude)) == "\n".join(lines)


def test_tools_are_shown_in_short_and_many_by_some_names() -> None:
    lines = [f"def look_{n}(key: str, exact: bool = True) -> str: ...  # Look something up." for n in range(90)]
    assert describe_tools(tools(*many(90))) == "\n".join([COMPACT, "```python", *lines, "```"])
    long = describe_tools(tools(*many(40, "Look " * 40)))
    assert f"  # {('Look ' * 40)[:119]}…\n" in long
    described = describe_tools(tools(*many(200)))
    assert described.startswith(f"{MANY.format(count=200)}\n- look_0, look_1, look_2, ")
    assert (described[-1], len(described.splitlines()[-1])) == ("…", MAX_NAMES_CHARS + 2)


async def test_help_prints_the_rest_in_the_sandbox(session: SandboxCodeExecutor) -> None:
    client = scripted(python("help(search)"), "I see.")
    agent = CodeActAgent("actor", session, model_client=client, tools=[search, *many(80)])

    result = await agent.run(task="What is there?")

    system = received_by(client)[0][0]
    assert isinstance(system, SystemMessage)
    assert (
        f"{COMPACT}\n```python\ndef search(city: str, limit: int = 5) -> list[Flight]: ...  # Find flights to a city.\n"
        in (system.content)
    )
    (output,) = [m.result.output for m in result.messages if isinstance(m, CodeExecutionEvent)]
    assert output.startswith(
        "Help on function search in module host_tools:\n\nsearch(city: str, limit: int = 5) -> list["
    )
    assert "    Find flights to a city.\n    \n    Args:\n        city: Its English name.\n" in output
    assert "    Flight, a dict: A flight that can be booked.\n        number: str  # as on the board\n" in output

"""smolagents' `CodeAgent`, with its default executor in this process; code may open files."""

from smolagents import CodeAgent, OpenAIServerModel, tool
from smolagents.local_python_executor import LocalPythonExecutor
from smolagents.memory import ActionStep
from smolagents.monitoring import LogLevel

from .solvers import price_tool


def solver(_name, url, model):
    """Return a function that solves a task."""

    def solve(task, _folder):
        price = price_tool(task)
        agent = CodeAgent(
            tools=[tool(price)] if price else [],
            model=OpenAIServerModel(model_id=model, api_base=url, api_key="none"),
            executor=LocalPythonExecutor(["*"], additional_functions={"open": open}),
            max_steps=5,
            verbosity_level=LogLevel.OFF,
        )
        answer = agent.run(task.prompt)
        steps = [step for step in agent.memory.steps if isinstance(step, ActionStep)]
        return str(answer), [str(step.observations or "") for step in steps]

    return solve

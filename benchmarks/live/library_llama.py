"""LlamaIndex' `CodeActAgent`, with an executor like that of its documentation: code runs in this process."""

import contextlib
import io
import traceback

from llama_index.core.agent.workflow import CodeActAgent
from llama_index.llms.openai_like import OpenAILike

from .solvers import price_tool


def solver(_name, url, model):
    """Return a function that solves a task."""

    async def solve(task, _folder):
        outputs = []
        price = price_tool(task)
        variables = {"price": price} if price else {}

        def execute(code: str) -> str:
            """Run code."""
            printed = io.StringIO()
            try:
                with contextlib.redirect_stdout(printed):
                    exec(code, variables)
            except BaseException:  # noqa: BLE001 - whatever code raises
                printed.write(traceback.format_exc())
            outputs.append(printed.getvalue())
            return outputs[-1]

        llm = OpenAILike(model=model, api_base=url, api_key="none", is_chat_model=True, context_window=8192)
        agent = CodeActAgent(code_execute_fn=execute, llm=llm, tools=[price] if price else [])
        answer = await agent.run(task.prompt, max_iterations=10)
        return str(answer), outputs

    return solve

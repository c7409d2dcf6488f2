"""Page core-user-guide/cookbook/tool-use-with-intervention: a person allows each tool call before it runs."""

import asyncio
from dataclasses import dataclass
from typing import Any

from autogen_core import (
    AgentId,
    DefaultInterventionHandler,
    DropMessage,
    FunctionCall,
    MessageContext,
    RoutedAgent,
    SingleThreadedAgentRuntime,
    message_handler,
)
from autogen_core.models import ChatCompletionClient, UserMessage
from autogen_core.tool_agent import ToolAgent, ToolException, tool_agent_caller_loop
from autogen_core.tools import ToolSchema
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.code_execution import PythonCodeExecutionTool


@dataclass
class Request:
    content: str


class Caller(RoutedAgent):
    def __init__(self, model: ChatCompletionClient, tools: list[ToolSchema], tool_agent: str) -> None:
        super().__init__("Asks the model and has its tool calls run.")
        self._model = model
        self._tools = tools
        self._tool_agent = AgentId(tool_agent, self.id.key)

    @message_handler
    async def answer(self, message: Request, ctx: MessageContext) -> Request:
        messages = await tool_agent_caller_loop(
            self,
            tool_agent_id=self._tool_agent,
            model_client=self._model,
            input_messages=[UserMessage(content=message.content, source="user")],
            tool_schema=self._tools,
            cancellation_token=ctx.cancellation_token,
        )
        return Request(str(messages[-1].content))


def allowed(call: FunctionCall) -> bool:
    return input(f"Run {call.name}({call.arguments})? ") == "y"


class Gate(DefaultInterventionHandler):
    async def on_send(
        self, message: Any, *, message_context: MessageContext, recipient: AgentId
    ) -> Any | type[DropMessage]:
        if isinstance(message, FunctionCall) and not allowed(message):
            raise ToolException(content="The user said no.", call_id=message.id, name=message.name)
        return message


async def main() -> None:
    runtime = SingleThreadedAgentRuntime(intervention_handlers=[Gate()])
    executor = DockerCommandLineCodeExecutor()
    tool = PythonCodeExecutionTool(executor)
    model = OpenAIChatCompletionClient(model="gpt-4o-mini")
    await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Runs tools.", [tool]))
    await Caller.register(runtime, "caller", lambda: Caller(model, [tool.schema], "tools"))

    await executor.start()
    runtime.start()
    reply = await runtime.send_message(Request("Run print('good morning') for me."), AgentId("caller", "default"))
    print(reply.content)
    await runtime.stop()
    await executor.stop()
    await model.close()


asyncio.run(main())

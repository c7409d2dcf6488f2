"""Writes the traces of tasks as runs, for `codeact view`."""

import asyncio
import re

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage

from autogen_codeact.runs import recorded


class TraceAgent(BaseChatAgent):
    """Says again what an agent and its model sent each other, so that the log of a run has it."""

    def __init__(self, row):
        super().__init__(re.sub(r"\W+", "_", row["library"]), f"{row['library']}: {row['verdict']}")
        self._row = row

    @property
    def produced_message_types(self):
        return (TextMessage,)

    async def on_messages_stream(self, messages, cancellation_token):
        said = []
        for call in self._row["trace"]:
            for message in call["messages"][len(said) :]:
                yield TextMessage(source=message["role"], content=_text(message["content"]))
            yield TextMessage(source="model", content=call["answer"])
            said = [*call["messages"], "the answer"]
        end = f"Expected: {self._row['expected']}. The answer is {self._row['verdict']}."
        yield Response(
            chat_message=TextMessage(source=self.name, content=f"{self._row.get('text') or 'no answer'}\n\n{end}")
        )

    async def on_messages(self, messages, cancellation_token):
        raise NotImplementedError

    async def on_reset(self, cancellation_token):
        pass


def _text(content):
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content or ())


async def _write(rows, folder):
    for row in rows:
        name = f"{row['task']}-{re.sub(r'[^a-z]+', '-', row['library'].lower())}-{row['verdict']}"
        async for _ in recorded(TraceAgent(row), task=f"{row['task']} with {row['library']}", path=folder / name):
            pass


def write_runs(rows, folder):
    """Write a run for each row into a folder."""
    asyncio.run(_write(rows, folder))

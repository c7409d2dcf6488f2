"""Ending a conversation when an agent says that it is done."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Self

from autogen_agentchat.base import TerminatedException, TerminationCondition
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, StopMessage
from autogen_core import Component
from pydantic import BaseModel, ConfigDict, Field

from autogen_codeact.agents.extraction import extract_code_blocks, normalise_language


class FinalWordTerminationConfig(BaseModel):
    """The configuration of a `FinalWordTermination`."""

    model_config = ConfigDict(extra="forbid")

    word: str = Field(default="TERMINATE", min_length=1)
    sources: list[str] | None = None
    languages: list[str] = ["python", "sh"]


class FinalWordTermination(TerminationCondition, Component[FinalWordTerminationConfig]):
    """Ends the conversation when a message ends with a word and holds no code that is still to run.

    AutoGen's `TextMentionTermination` also fires on the word in code, in quoted output and in thoughts, and forgets its
    sources when it is dumped.

    Args:
        word: The word; case matters, punctuation and emphasis around it do not. Default: "TERMINATE".
        sources: Names of those whose word counts. Default: all participants.
        languages: Languages that are run in this conversation. Default: "python" and "sh".
    """

    component_config_schema = FinalWordTerminationConfig
    component_provider_override: ClassVar[str | None] = "autogen_codeact.teams.FinalWordTermination"

    def __init__(
        self, word: str = "TERMINATE", sources: Sequence[str] | None = None, languages: Sequence[str] = ("python", "sh")
    ) -> None:
        self._word = word
        self._sources = list(sources) if sources is not None else None
        self._languages = list(languages)
        self._runnable = frozenset(map(normalise_language, languages))
        self._at_the_end = re.compile(rf"(?<![^\W_])(?<![^\W_]_){re.escape(word)}(?=[\W_]*\Z)")
        self._terminated = False

    @property
    def terminated(self) -> bool:
        """Whether the word was said."""
        return self._terminated

    async def __call__(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> StopMessage | None:
        """Return a message that says why it ends, or None."""
        if self._terminated:
            raise TerminatedException("The conversation has already ended. Reset the condition first.")
        for message in messages:
            if self._counts(message) and self._is_final(message.to_text()):
                self._terminated = True
                return StopMessage(content=f"{message.source} said {self._word}", source=type(self).__name__)
        return None

    async def reset(self) -> None:
        self._terminated = False

    def _counts(self, message: BaseAgentEvent | BaseChatMessage) -> bool:
        return isinstance(message, BaseChatMessage) and (self._sources is None or message.source in self._sources)

    def _is_final(self, text: str) -> bool:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if (match := self._at_the_end.search(text)) is None:
            return False
        line = 1 + text.count("\n", 0, match.start())
        return not any(
            block.language in self._runnable or line <= block.line + block.code.rstrip("\n").count("\n")
            for block in extract_code_blocks(text)
        )

    def _to_config(self) -> FinalWordTerminationConfig:
        return FinalWordTerminationConfig(word=self._word, sources=self._sources, languages=self._languages)

    @classmethod
    def _from_config(cls, config: FinalWordTerminationConfig) -> Self:
        return cls(config.word, config.sources, config.languages)

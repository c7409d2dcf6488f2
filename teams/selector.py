"""A model chooses who speaks next."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Self

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage
from autogen_core import Component, ComponentModel
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    LLMMessage,
    ModelFamily,
    SystemMessage,
    UserMessage,
)
from pydantic import BaseModel, ConfigDict

from autogen_codeact.agents.extraction import without_thoughts
from autogen_codeact.teams.run import Message
from autogen_codeact.teams.speakers import Conversation, Position, SelectionError, SpeakerError, Speakers

CandidateFunc = Callable[[Sequence[Message]], Sequence[str] | Awaitable[Sequence[str]]]

PROMPT = """\
Several participants work on a task together:

{roles}

This is their conversation so far:

{history}

Who of {participants} is to speak next? Answer with that name, and nothing else."""

MAX_ATTEMPTS = 3


class SelectorPosition(Position):
    """Who spoke last; the field of AutoGen's `SelectorManagerState`."""

    type: str = "SelectorManagerState"
    previous_speaker: str | None = None


class SelectorConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model_client: ComponentModel
    prompt: str = PROMPT
    allow_repeated: bool = False


class Selector(Speakers[SelectorPosition], Component[SelectorConfig]):
    """A model reads the conversation and names the next speaker.

    An answer that names no participant, several, or one who may not speak is sent back with an explanation, up to three
    answers in all. The tokens count in the team's budget.

    Args:
        model_client: The model.
        prompt: What it is asked, with the fields `{roles}` (names and descriptions), `{participants}` (the names to choose from)
            and `{history}` (what was said). Default: `PROMPT`.
        allow_repeated: Whether a participant may speak twice in a row. Default: no.
        candidate_func: Takes the messages and returns the names to choose from, sync or async; `allow_repeated` does not matter
            then. A selector that has one can't be dumped. Default: all participants.

    Raises:
        TypeError: `model_client` is not a model client.
        ValueError: The prompt has other fields.
    """

    component_config_schema = SelectorConfig
    component_provider_override: ClassVar[str | None] = "autogen_codeact.teams.Selector"
    position = SelectorPosition
    manager_name = "SelectorGroupChatManager"

    def __init__(
        self,
        model_client: ChatCompletionClient,
        *,
        prompt: str = PROMPT,
        allow_repeated: bool = False,
        candidate_func: CandidateFunc | None = None,
    ) -> None:
        if isinstance(model_client, type) or not callable(getattr(model_client, "create", None)):
            raise TypeError(
                "model_client must be an AutoGen model client such as OpenAIChatCompletionClient(model='gpt-4o'), "
                f"not {model_client!r:.80}."
            )
        try:
            prompt.format(roles="", participants="", history="")
        except (LookupError, ValueError, AttributeError) as error:
            raise ValueError(
                f"prompt= has a field other than roles, participants and history ({error!r}). Write {{{{ for a brace."
            ) from None
        self._model_client = model_client
        self._prompt = prompt
        self._allow_repeated = allow_repeated
        self._candidate_func = candidate_func
        self._owns_client = False

    def check(self, participants: Sequence[ChatAgent | BaseTeam], *, bounded: bool) -> None:
        """Refuse a team in which there is nothing to choose."""
        if len(participants) < 2:
            raise SpeakerError("A Selector needs at least two participants to choose from.")

    def check_position(self, position: SelectorPosition, names: Sequence[str]) -> None:
        """Refuse a previous speaker who is not a participant."""
        if position.previous_speaker not in (None, *names):
            raise ValueError("previous_speaker is not a participant.")

    def start(self, names: Sequence[str]) -> SelectorPosition:
        return SelectorPosition()

    async def next(self, position: SelectorPosition, conversation: Conversation) -> list[str]:
        """Return whom the model chooses; without a choice it is not asked."""
        candidates = await self._candidates(position, conversation)
        chosen = candidates[0] if len(candidates) == 1 else await self._ask(candidates, conversation)
        position.previous_speaker = chosen
        return [chosen]

    async def _candidates(self, position: SelectorPosition, conversation: Conversation) -> list[str]:
        names = conversation.names
        if self._candidate_func is None:
            return [name for name in names if self._allow_repeated or name != position.previous_speaker]
        found = self._candidate_func(conversation.thread)
        candidates = list(dict.fromkeys((await found if inspect.isawaitable(found) else found) or ()))
        if not candidates or not set(candidates) <= set(names):
            raise SpeakerError(
                f"candidate_func returned {candidates}; return at least one of the participants {', '.join(names)}."
            )
        return candidates

    async def _ask(self, candidates: list[str], conversation: Conversation) -> str:
        roles = "\n".join(" ".join(f"{each.name}: {each.description}".split()) for each in conversation.participants)
        prompt = self._prompt.format(roles=roles, participants=str(candidates), history=_history(conversation.thread))
        # Many models other than OpenAI's answer only to a user.
        is_openai = ModelFamily.is_openai(self._model_client.model_info["family"])
        messages: list[LLMMessage] = [
            SystemMessage(content=prompt) if is_openai else UserMessage(content=prompt, source="user")
        ]
        for _ in range(MAX_ATTEMPTS):
            result = await self._model_client.create([*messages])
            conversation.count(result.usage)
            answer = without_thoughts(result.content) if isinstance(result.content, str) else ""
            named = _named(answer, conversation.names)
            if len(named) == 1 and named[0] in candidates:
                return named[0]
            wrong = "names no participant" if not named else f"names {' and '.join(named)}"
            messages += [
                AssistantMessage(content=answer, source="selector"),
                UserMessage(content=f"That {wrong}. Answer with exactly one of {candidates}.", source="user"),
            ]
        raise SelectionError(
            f"The model named none of {', '.join(candidates)} in {MAX_ATTEMPTS} answers; the last was {answer[:200]!r}. Use a "
            "model that follows the prompt, change prompt=, or give the participants clearer names and descriptions."
        )

    async def close(self) -> None:
        """Close a model client that came from a config."""
        if self._owns_client:
            await self._model_client.close()

    def _to_config(self) -> SelectorConfig:
        if self._candidate_func is not None:
            raise ValueError(
                "candidate_func can't be dumped: a config can't hold a function. Give it again after loading."
            )
        return SelectorConfig(
            model_client=self._model_client.dump_component(), prompt=self._prompt, allow_repeated=self._allow_repeated
        )

    @classmethod
    def _from_config(cls, config: SelectorConfig) -> Self:
        client = ChatCompletionClient.load_component(config.model_client)
        loaded = cls(client, prompt=config.prompt, allow_repeated=config.allow_repeated)
        loaded._owns_client = True  # the only reference to it
        return loaded


def _history(thread: Sequence[Message]) -> str:
    history: list[LLMMessage] = []
    for message in thread:
        if isinstance(message, BaseChatMessage):
            history += message.context if isinstance(message, HandoffMessage) else []
            history.append(message.to_model_message())
    shown = [
        f"{each.source}: {each.content}".rstrip()
        for each in history
        if isinstance(each, UserMessage | AssistantMessage)
    ]
    return "\n".join(f"{each}\n\n" for each in shown)


def _named(answer: str, names: Sequence[str]) -> list[str]:
    """Return the names in an answer: written exactly, else in another case, with spaces, hyphens or escapes for underscores."""
    exact = [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", answer)]
    plain = re.sub(r"\\(?=\W|_)", "", answer)
    loose = (r"[\s_-]*".join(map(re.escape, re.split(r"[\s_-]+", name))) for name in names)
    forms = (re.search(rf"(?<!\w){form}(?!\w)", plain, re.IGNORECASE) for form in loose)
    return exact or [name for name, found in zip(names, forms, strict=True) if found]

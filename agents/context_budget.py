"""Keeps requests to a model within a budget: older outputs are shortened, and older images replaced by their names."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence

from autogen_core import Image
from autogen_core.models import AssistantMessage, LLMMessage, SystemMessage, UserMessage

IMAGE_CHARS = 4_000
"""What an image counts: models need about 1,000 tokens for one."""
MIN_BUDGET = 20_000
DEFAULT_BUDGET = 400_000
LATEST = 8
"""Messages at the end of a conversation that stay whole."""
SHORTEN_TO = 0.6
LEAVE_OUT_TO = 0.8
"""Shares of the budget that are used after a request was too long. Until it is used up again, requests begin alike, so that the
caches of providers work."""
SHORT_CHARS = 600
MAX_IMAGE_NAMES = 10
NOTE_CHARS = 200
"""Room for the note about messages that are left out."""

LEFT_OUT = "[… {count} characters left out to save space{where} …]"
EARLIER = "[{count} earlier messages of this conversation are left out here to save space.{where}]"
# What `observation.bounded` writes. Outputs can contain such text, too, but only of a file for outputs.
_IN_FILE = re.compile(
    r"; all (?:of it|that was kept of the output) is in the file (/workspace/\.codeact/\S{1,200}) …\]"
)
_IMAGE_NAME = re.compile(r"[^\s:,;()<>\[\]\"']{1,120}\.(?:png|jpe?g|gif|webp)\b", re.IGNORECASE)

Keep = Callable[[str], Awaitable[str | None]]
"""Stores text in a file that code can read; returns the file's name, or None if that is not possible."""


class ContextBudget:
    """Fits conversations of one agent into a budget. The conversation itself is not changed, only what is sent.

    Over the budget, outputs and images are shortened, then messages of the model, the oldest first, until 60 % of it is used. If
    that is not enough, the earliest messages are left out until 80 % of it is used. A note in each place says what is missing,
    and names the file that has all of it, if there is one. The system message, the latest message of somebody else (the task)
    and the last 8 messages stay whole, even over the budget.
    """

    def __init__(self, limit: int, source: str, keep: Keep) -> None:
        self._limit = limit
        self._source = source
        self._keep = keep
        self._files = False
        # By the id of a message: the message itself, so that the id stays its own, and what is sent instead of it, if anything.
        self._replaced: dict[int, tuple[LLMMessage, LLMMessage | None]] = {}

    async def fit(self, messages: Sequence[LLMMessage]) -> list[LLMMessage]:
        """Return what is sent of a conversation."""
        if not self._replaced and sum(map(size_of, messages)) <= self._limit:
            return list(messages)
        here = {id(message) for message in messages}
        self._replaced = {key: pair for key, pair in self._replaced.items() if key in here}
        if self._size(messages) > self._limit:
            await self._shorten(messages)
        if self._size(messages) > self._limit:
            self._leave_out(messages)
        gone = [message for message in messages if self._sent(message) is None]
        fitted = []
        for message in messages:
            if (sent := self._sent(message)) is not None:
                fitted.append(sent)
            elif message is gone[0]:
                fitted.append(self._note(len(gone)))
        return fitted

    async def _shorten(self, messages: Sequence[LLMMessage]) -> None:
        movable = self._movable(messages)
        room = int(self._limit * SHORTEN_TO) - self._size(messages)
        outputs = [message for message in movable if self._is_own(message)]
        answers = [message for message in movable if isinstance(message, AssistantMessage)]
        for message in (*outputs, *answers):
            if room >= 0:
                return
            if id(message) not in self._replaced:
                shorter = await self._shortened(message)
                self._replaced[id(message)] = (message, shorter)
                room += size_of(message) - size_of(shorter)

    def _leave_out(self, messages: Sequence[LLMMessage]) -> None:
        room = int(self._limit * LEAVE_OUT_TO) - self._size(messages)
        for message in self._movable(messages):
            if room >= 0:
                return
            if (sent := self._sent(message)) is not None:
                self._replaced[id(message)] = (message, None)
                room += size_of(sent)

    def _size(self, messages: Sequence[LLMMessage]) -> int:
        sent = [self._sent(message) for message in messages]
        return sum(size_of(message) for message in sent if message is not None) + NOTE_CHARS * (None in sent)

    def _sent(self, message: LLMMessage) -> LLMMessage | None:
        known = self._replaced.get(id(message))
        return message if known is None else known[1]

    def _note(self, count: int) -> LLMMessage:
        where = " Long outputs are in files in /workspace/.codeact." if self._files else ""
        return UserMessage(content=EARLIER.format(count=count, where=where), source=self._source)

    def _movable(self, messages: Sequence[LLMMessage]) -> list[LLMMessage]:
        """Return the messages that need not stay whole."""
        others = [message for message in messages if isinstance(message, UserMessage) and not self._is_own(message)]
        task = others[-1] if others else None
        early = messages[: max(0, len(messages) - LATEST)]
        return [message for message in early if message is not task and not isinstance(message, SystemMessage)]

    def _is_own(self, message: LLMMessage) -> bool:
        return isinstance(message, UserMessage) and message.source == self._source

    async def _shortened(self, message: LLMMessage) -> LLMMessage:
        text, images = _parts(message)
        short = text
        if len(text) > SHORT_CHARS:
            # What the model itself has written is not stored: it is code that has run.
            file = await self._file(text) if self._is_own(message) else None
            where = f"; all of it is in the file {file}" if file is not None else ""
            half = SHORT_CHARS // 2
            gap = LEFT_OUT.format(count=len(text) - 2 * half, where=where)
            short = f"{text[:half]}\n{gap}\n{text[-half:]}"
        if images:
            names = list(dict.fromkeys(_IMAGE_NAME.findall(text)))[:MAX_IMAGE_NAMES]
            listed = f": {', '.join(names)}" if names else ""
            short = f"{short.rstrip()}\n[{images} image{'s' if images > 1 else ''} left out to save space{listed}]"
        return message.model_copy(update={"content": short}) if images or short != text else message

    async def _file(self, text: str) -> str | None:
        in_file = _IN_FILE.search(text)
        name = in_file[1] if in_file is not None else await self._keep(text)
        self._files = self._files or name is not None
        return name


def check_budget(limit: int | None) -> None:
    """Check an agent's argument."""
    if limit is not None and limit < MIN_BUDGET:
        raise ValueError(
            f"context_budget must be at least {MIN_BUDGET:,} characters, not {limit}; None is for no limit."
        )


def size_of(message: LLMMessage) -> int:
    """Return what a message counts: its characters, and 4,000 for each image."""
    if isinstance(message.content, str):
        return len(message.content)
    text, images = _parts(message)
    return len(text) + images * IMAGE_CHARS


def _parts(message: LLMMessage) -> tuple[str, int]:
    content = message.content
    if isinstance(content, str):
        return content, 0
    parts: Iterable[object] = content
    texts = [part if isinstance(part, str) else "" if isinstance(part, Image) else str(part) for part in parts]
    return "\n".join(filter(None, texts)), sum(isinstance(part, Image) for part in content)

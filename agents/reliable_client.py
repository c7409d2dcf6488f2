"""A model client with a time limit, which repeats requests that failed with a temporary error."""

from __future__ import annotations

import asyncio
import email.utils
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult

from autogen_codeact.agents.model import awaited
from autogen_codeact.agents.model_calls import BEGINS_AGAIN, Items, ModelCall, ModelMiddleware, innermost, whole

T = TypeVar("T")

DEFAULT_RETRIES = 2
_FIRST_DELAY_S, _MAX_DELAY_S = 0.5, 8.0
_PASSING_STATUS = frozenset({408, 409, 425, 429})
# By name: importing a vendor's package takes long, and it is there if the error is one of its own.
_CONNECTION_ERRORS = frozenset({"APIConnectionError", "TransportError", "ConnectionError"})


class ModelTimeoutError(TimeoutError):
    """The model has sent nothing for too long."""


class ReliableClient(ModelMiddleware):
    """Ends a call in which the server sends nothing, and repeats one that failed with a temporary error.

    A streamed answer that breaks off is requested once more. If the stream ended without a reason, as it does when a server or a
    proxy closes the connection, the answer is requested whole, because only that shows whether it is complete.

    Args:
        client: Is asked. Retries of its own, of which nobody is told, are switched off.
        timeout_s: How long the server may send nothing, in seconds: for a stream between two pieces, else for the whole answer.
        tell: Receives a line for the user before a call is repeated.
        retries: How often a call is repeated. Default: as often as the client would.
    """

    def __init__(
        self,
        client: ChatCompletionClient,
        timeout_s: float,
        *,
        tell: Callable[[str], None] = lambda line: None,
        retries: int | None = None,
    ) -> None:
        super().__init__(client)
        self._timeout_s = max(timeout_s, client.least_timeout_s if isinstance(client, ModelMiddleware) else 0.0)
        self._tell = tell
        own = _take_retries(client)
        self._retries = own if retries is None else retries

    async def handle(self, call: ModelCall) -> Items:
        """Yield the answer to a call."""
        if not call.stream:
            yield await self._whole(call)
            return
        failures, shown, broken = 0, False, False
        while True:
            try:
                async with aclosing(self._pieces(call)) as pieces:
                    async for item in pieces:
                        if isinstance(item, CreateResult) and self._retries > 0 and _breaks_off(item):
                            break
                        shown = shown or isinstance(item, str)
                        yield item
                    else:
                        return
                break
            except Exception as error:
                if broken:  # again
                    raise
                failures, broken = failures + 1, shown
                line, delay = self._plan_retry(error, failures, begun=shown)
            if broken:  # before the line, which must not stand in the middle of the answer
                yield BEGINS_AGAIN
            self._tell(line)
            await _cancellable(asyncio.sleep(delay), call.options)
        if shown:
            yield BEGINS_AGAIN
        self._tell(
            "the model's stream ended without saying that the answer is complete: asking again for the whole answer"
        )
        options = {name: value for name, value in call.options.items() if name != "include_usage"}
        result = await self._whole(ModelCall(self.client.create, False, call.messages, options))
        if isinstance(result.content, str):
            yield result.content
        yield result.model_copy(update={"finish_reason": "stop"}) if _breaks_off(result) else result

    async def _whole(self, call: ModelCall) -> CreateResult:
        failures = 0
        while True:
            try:
                silence = f"the model gave no answer in {self._timeout_s:g} s"
                return await self._in_time(whole(call.items()), call.options, silence)
            except Exception as error:  # noqa: BLE001 - raised again, unless it passes
                failures += 1
                line, delay = self._plan_retry(error, failures)
            self._tell(line)
            await _cancellable(asyncio.sleep(delay), call.options)

    async def _pieces(self, call: ModelCall) -> Items:
        async with aclosing(call.items()) as stream:
            while True:
                silence = f"the model sent nothing for {self._timeout_s:g} s"
                item = await self._in_time(_next(stream), call.options, silence)
                if item is None:
                    return
                yield item

    async def _in_time(self, work: Coroutine[Any, Any, T], options: dict[str, Any], problem: str) -> T:
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                return await _cancellable(work, options)
        except TimeoutError as error:
            if limit.expired():
                raise ModelTimeoutError(problem) from error
            raise

    def _plan_retry(self, error: Exception, failures: int, *, begun: bool = False) -> tuple[str, float]:
        """Return what to tell and how many seconds to wait before a call is repeated, or raise the error instead."""
        problem = _passing_problem(error, begun=begun)
        if problem is None or failures > self._retries:
            raise error
        delay = requested_delay(error)
        if delay is not None and delay > self._timeout_s:
            self._tell(f"{problem}, and wants {_seconds(delay)} s before the next request: not waiting for so long")
            raise error
        if delay is None:
            delay = min(_FIRST_DELAY_S * 2 ** (failures - 1), _MAX_DELAY_S)
            delay *= random.uniform(0.75, 1)  # noqa: S311 - only so that many runs don't ask at the same time
        return f"{problem}: asking again in {_seconds(delay)} s ({failures} of {self._retries})", delay


async def _next(stream: AsyncIterator[T]) -> T | None:
    # A coroutine of its own, because a task can't raise StopAsyncIteration.
    return await anext(stream, None)


async def _cancellable(work: Coroutine[Any, Any, T], options: dict[str, Any]) -> T:
    """Await `work` until the call's token is cancelled: not every client looks at it all the time."""
    token = options.get("cancellation_token")
    return await (awaited(work, token) if isinstance(token, CancellationToken) else work)


def _take_retries(client: ChatCompletionClient) -> int:
    """Return how often the vendor's client repeats a call, and have it no longer do so."""
    vendors: Any = getattr(innermost(client), "_client", None)
    retries = getattr(vendors, "max_retries", None)
    if not isinstance(retries, int):
        return DEFAULT_RETRIES
    vendors.max_retries = 0
    return retries


def _breaks_off(result: CreateResult) -> bool:
    return result.finish_reason == "unknown" and not result.cached


def _passing_problem(error: Exception, *, begun: bool) -> str | None:
    """Return what to tell of an error that may be gone when the call is repeated; None for another error."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and is_temporary(error):
        return f"the model's server {'is busy' if status in (429, 503, 529) else 'failed'} (HTTP {status})"
    if isinstance(error, ModelTimeoutError) or isinstance(status, int):
        return None
    if is_temporary(error):
        return "the model's answer broke off" if begun else "no connection to the model's server"
    # The server has sent an error in the middle of its answer.
    return "the model's server failed in its answer" if begun and type(error).__name__ == "APIError" else None


def is_temporary(error: BaseException) -> bool:
    """Return whether a model's server may answer when the call is repeated: it was busy, failed, or could not be reached."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        final = _headers(error).get("x-should-retry") == "false" or getattr(error, "code", None) == "insufficient_quota"
        return not final and (status in _PASSING_STATUS or (status >= 500 and status != 501))
    return any(kind.__name__ in _CONNECTION_ERRORS for kind in type(error).__mro__)


def requested_delay(error: Exception) -> float | None:
    """Return the seconds that the server wants to pass before the next request, if it says so."""
    headers = _headers(error)
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = str(headers.get(name) or "")[:100]
        try:
            return max(0.0, float(value) * unit)
        except ValueError:
            date = email.utils.parsedate_tz(value)
            if date is not None:
                return max(0.0, email.utils.mktime_tz(date) - time.time())
    return None


def _headers(error: BaseException) -> Mapping[str, str]:
    headers = getattr(getattr(error, "response", None), "headers", None)
    return headers if isinstance(headers, Mapping) else {}


def _seconds(delay: float) -> str:
    return f"{round(delay, 1):g}"

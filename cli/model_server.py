"""Looking for a model's key and server."""

from __future__ import annotations

import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from urllib.parse import urlsplit

from autogen_codeact.cli.check import Check

ENDPOINT_DEADLINE_S = 3.0


def check_model(base_url: str | None) -> Iterable[Check]:
    """Look for a key, and for the model server where one is named. The key itself is neither shown nor sent.

    Args:
        base_url: The server, or None.
    """
    if os.environ.get("OPENAI_API_KEY", "").strip():
        yield Check("model key", "ok", "OPENAI_API_KEY is set")
    else:
        advice = "`codeact run --model NAME` needs one: set it, or name another variable with --api-key-env."
        yield Check("model key", "note", "OPENAI_API_KEY is not set", advice)
    if base_url:
        yield check_endpoint(base_url)


def check_endpoint(base_url: str) -> Check:
    """See whether a model server answers at all.

    Args:
        base_url: Its address.
    """
    shown = without_login(base_url)
    try:
        status = _within(ENDPOINT_DEADLINE_S, lambda: _ask(f"{shown.rstrip('/')}/models"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return Check("model server", "lack", f"{shown}: {reason}", "Is it running, and is the address right?")
    return Check("model server", "ok", f"{shown} answers (HTTP {status} without a key)")


def _ask(url: str) -> int:
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError("an address begins with http:// or https://")
    try:
        with urllib.request.urlopen(url, timeout=ENDPOINT_DEADLINE_S) as answer:  # noqa: S310 - the scheme was looked at
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code  # it wants a key, which shows that it is there


def _within(limit_s: float, work: Callable[[], int]) -> int:
    """Run `work` for so long at most: a name server that does not answer keeps no timeout of a socket."""
    outcome: SimpleQueue[int | Exception] = SimpleQueue()

    def run() -> None:
        try:
            outcome.put(work())
        except Exception as error:  # noqa: BLE001 - carried over to the caller, whatever it is
            outcome.put(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        found = outcome.get(timeout=limit_s)
    except Empty:
        raise TimeoutError(f"no answer in {limit_s:g} s") from None
    if isinstance(found, Exception):
        raise found
    return found


def without_login(url: str) -> str:
    """The address without user and password."""
    return url.replace(urlsplit(url).netloc.rpartition("@")[0] + "@", "") if "@" in urlsplit(url).netloc else url

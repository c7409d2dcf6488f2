"""Checks of `codeact doctor` for the model: its key and its server."""

from __future__ import annotations

import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from urllib.parse import urlsplit

from autogen_codeact.cli.check import Check

SERVER_TIMEOUT_S = 3.0


def check_model(base_url: str | None) -> Iterable[Check]:
    """Look for a key, and for the model server if one is configured. The key itself is neither shown nor sent."""
    if os.environ.get("OPENAI_API_KEY", "").strip():
        yield Check("model key", "ok", "OPENAI_API_KEY is set")
    else:
        advice = "`codeact run --model NAME` needs a key: set it, or name another variable with --api-key-env."
        yield Check("model key", "note", "OPENAI_API_KEY is not set", advice)
    if base_url:
        yield _check_server(without_login(base_url))


def _check_server(url: str) -> Check:
    try:
        status = _run_with_timeout(SERVER_TIMEOUT_S, lambda: _request_status(f"{url.rstrip('/')}/models"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return Check("model server", "lack", f"{url}: {reason}", "Is it running, and is the address right?")
    return Check("model server", "ok", f"{url} answers (HTTP {status} without a key)")


def _request_status(url: str) -> int:
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError("an address begins with http:// or https://")
    try:
        with urllib.request.urlopen(url, timeout=SERVER_TIMEOUT_S) as answer:  # noqa: S310 - the scheme is checked above
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code  # "unauthorized" also shows that the server runs


def _run_with_timeout(timeout_s: float, work: Callable[[], int]) -> int:
    """Run `work` in a thread: the timeout of a socket does not cover the resolution of a name."""
    future: Future[int] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return future.result(timeout_s)
    except TimeoutError:
        raise TimeoutError(f"no answer in {timeout_s:g} s") from None


def without_login(url: str) -> str:
    """Return the address without user and password."""
    return url.replace(urlsplit(url).netloc.rpartition("@")[0] + "@", "") if "@" in urlsplit(url).netloc else url

"""`codeact models`: asks servers of models which models they have."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import httpx

from autogen_codeact.cli.model_choice import GGUF, LOCAL, OPENAI, PRESETS, Preset, server_address
from autogen_codeact.cli.output import print_json
from autogen_codeact.cli.terminal import Style, Terminal
from autogen_codeact.local_models.server import LocalModelError, check_installed
from autogen_codeact.local_models.weights import NAME, is_fetched
from codeact_sandbox.types.formatting import format_count

T = TypeVar("T")
Status = Literal["ready", "no key", "key refused", "no server", "no list", "not installed"]

OTHER = "--base-url"
"""Name of a server without a prefix."""
DEADLINE_S = 5.0
_MAX_BODY = 16 * 1024 * 1024
_MAX_MODELS = 5_000
_MAX_NAME = 200
_SHOWN = 12
_INDENT = 14
_ERROR_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
_STYLES: dict[str, Style] = {"ready": "green", "key refused": "red"}


@dataclass(frozen=True)
class Server:
    """What is known of a server of models; its address has no login, and the key is nowhere shown."""

    name: str
    title: str
    base_url: str
    key_variable: str
    key_is_set: bool
    status: Status = "no server"
    detail: str = ""
    advice: str = ""
    models: list[str] = field(default_factory=list)


def print_models(base_url: str | None, api_key_env: str | None, *, as_json: bool) -> int:
    """Ask all servers for their models, and print what they say; return 0 if at least one can be used, else 1."""
    servers = [*probe_servers(base_url, api_key_env), _local_models()]
    good = any(server.status == "ready" for server in servers)
    if as_json:
        print_json({"ok": good, "servers": [asdict(server) for server in servers]})
        return 0 if good else 1
    terminal = Terminal()
    for server in servers:
        terminal.field(
            server.name, f"{server.status}: {server.detail}", _STYLES.get(server.status, "yellow"), indent=_INDENT
        )
        key = f", with the key in {server.key_variable}" if server.key_is_set else ""
        more = len(server.models) - _SHOWN
        names = [*server.models[:_SHOWN], *([f"and {more} more (--json lists all)"] if more > 0 else [])]
        for text in (f"{server.base_url}{key}", server.advice and f"-> {server.advice}", ", ".join(names)):
            if text:
                terminal.field("", text, indent=_INDENT)
    terminal.line()
    terminal.line(
        "Give one of the names to --model." if good else "No model can be used now. `codeact demo` needs none."
    )
    return 0 if good else 1


def _local_models() -> Server:
    """Return what is known of models that llama.cpp runs in a process of this program."""
    known = (LOCAL, "Models on this machine", "llama.cpp, in a child process", "", False)
    try:
        check_installed()
    except LocalModelError as error:
        return Server(*known, "not installed", "llama.cpp is missing", f"{error}.")
    fetched = "fetched" if is_fetched() else "fetched at its first use, 93 MB"
    return Server(*known, "ready", f"{NAME}, a toy ({fetched}); any other with {GGUF}FILE", models=[LOCAL])


def without_login(url: str) -> str:
    """Return the address without user and password."""
    return url.replace(urlsplit(url).netloc.rpartition("@")[0] + "@", "") if "@" in urlsplit(url).netloc else url


def probe_servers(
    base_url: str | None,
    api_key_env: str | None,
    *,
    presets: Sequence[Preset] = PRESETS,
    environment: Mapping[str, str] = os.environ,
    deadline_s: float = DEADLINE_S,
) -> list[Server]:
    """Look at every server with a prefix, and at another one if its address is given, within one deadline.

    Only a server whose key is set, or that needs none, gets a request. It contains the key, as those of `codeact run` do.
    """
    until = time.monotonic() + deadline_s
    servers = [(preset, server_address(preset, environment)) for preset in presets]
    if base_url is not None:
        other = replace(OPENAI, name=OTHER, title="Another server", key_variable=api_key_env or "OPENAI_API_KEY")
        servers.insert(0, (replace(other, needs_key=False), base_url.rstrip("/")))
    probes = [_Probe(preset, address, environment.get(preset.key_variable, "").strip()) for preset, address in servers]
    found = _at_once([lambda probe=each: probe.run(until) for each in probes], deadline_s)  # type: ignore[misc]
    return [
        server or probe.unreachable(f"no answer in {deadline_s:g} s")
        for probe, server in zip(probes, found, strict=True)
    ]


class _Probe:
    def __init__(self, preset: Preset, address: str, key: str) -> None:
        self._preset, self._address, self._key = preset, address, key

    def run(self, until: float) -> Server:
        key, variable = self._key, self._preset.key_variable
        if not key and self._preset.needs_key:
            return self._server("no key", f"{variable} is not set", f"Set {variable}.")
        if not (key.isascii() and key.isprintable()):
            return self._server("no key", f"{variable} holds characters that no key has", "Copy the key again.")
        return self._ask(until)

    def _ask(self, until: float) -> Server:
        preset, key, variable = self._preset, self._key, self._preset.key_variable
        path, headers = "/models", {"Authorization": f"Bearer {key}"} if key else {}
        if preset.own_list:
            path, headers = "/models?limit=1000", {"x-api-key": key, "anthropic-version": "2023-06-01"}
        status, body = _request(self._address + path, headers, until)
        if isinstance(status, str):
            return self.unreachable(status)
        if status in (401, 403) and key:
            return self._server("key refused", f"HTTP {status}", f"Check the key in {variable}.")
        if status in (401, 403):
            return self._server("no key", f"{variable} is not set", f"Set {variable}.")
        models = self._models(body) if status == 200 else None
        if models is None:
            problem = f"HTTP {status}" if status != 200 else "its answer is not a list of models"
            return self._server("no list", problem, "Is the address right? `codeact run` may work all the same.")
        count = format_count(len(models), "model")
        if key or preset.name != OTHER:
            return self._server("ready", count, models=models)
        advice = f"Set {variable} to any value: `codeact run` wants one."
        return self._server("no key", f"{count}, none of which needs a key", advice, models)

    def unreachable(self, problem: str) -> Server:
        return self._server("no server", problem, self._preset.advice)

    def _server(self, status: Status, detail: str, advice: str = "", models: Sequence[str] = ()) -> Server:
        preset, url = self._preset, without_login(self._address)
        known = (preset.name, preset.title, url, preset.key_variable, bool(self._key))
        return Server(*known, status, detail, advice, list(models))

    def _models(self, body: bytes) -> list[str] | None:
        """Return the values for `--model` in a server's list, or None if it is not a list of models."""
        try:
            answer: Any = json.loads(body)
        except (ValueError, RecursionError):
            return None
        if not isinstance(answer, dict) or "data" not in answer:
            return None
        entries = answer["data"] or []  # Ollama without a model says null
        if not isinstance(entries, list):
            return None
        names = [str(entry["id"]) for entry in entries[:_MAX_MODELS] if isinstance(entry, dict) and entry.get("id")]
        prefix = "" if self._preset.name == OTHER else f"{self._preset.name}/"
        # A server that repeats the key must not have it printed.
        shown = [name for name in names if len(name) <= _MAX_NAME and not (self._key and self._key in name)]
        return sorted({f"{prefix}{name.removeprefix('models/')}" for name in shown})


def _request(url: str, headers: dict[str, str], until: float) -> tuple[int | str, bytes]:
    """Return the status and body of an answer; in place of the status, why there is none."""
    body = b""
    try:
        if urlsplit(url).scheme not in ("http", "https"):
            return "an address begins with http:// or https://", body
        # Redirections are not followed: they could lead the key to another server.
        with (
            httpx.Client(timeout=DEADLINE_S, follow_redirects=False) as client,
            client.stream("GET", url, headers=headers) as answer,
        ):
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > _MAX_BODY or time.monotonic() > until:
                    return "its list of models is too long", b""
            return answer.status_code, body
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as error:
        return _ERROR_NUMBER.sub("", str(error)) or type(error).__name__, b""


def _at_once(works: Sequence[Callable[[], T]], seconds: float) -> list[T | None]:
    """Return the results of functions, None for those that take longer than a deadline.

    They run in threads that do not keep the process alive: looking up a name can't be cancelled.
    """
    results: list[T | None] = [None] * len(works)

    def run(number: int) -> None:
        results[number] = works[number]()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(works))]
    until = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return results[:]

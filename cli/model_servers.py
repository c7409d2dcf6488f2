"""`codeact models`: asks servers of models which models they have."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import httpx

from autogen_codeact.cli.model_choice import GGUF, LOCAL, OPENAI, PRESETS, Preset, server_address
from autogen_codeact.cli.output import print_json
from autogen_codeact.cli.terminal import Style, Terminal
from autogen_codeact.local_models.server import LocalModelError, check_installed
from autogen_codeact.local_models.weights import NAME, is_fetched
from codeact_sandbox.host.threads import Threads
from codeact_sandbox.types.text import format_count

Status = Literal["ready", "no key", "key refused", "no server", "no list", "not installed"]

OTHER = "--base-url"  # name of a server without a prefix
DEADLINE_S = 5.0
_MAX_BODY = 16 * 1024 * 1024
_MAX_MODELS = 5_000
_MAX_NAME = 200
_SHOWN = 12
_INDENT = 14
_ERROR_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
_STYLES: dict[str, Style] = {"ready": "green", "key refused": "red"}


class Server(NamedTuple):
    """What is known of a server of models; its address has no login, and the key is nowhere shown."""

    name: str
    title: str
    base_url: str
    key_variable: str
    key_is_set: bool
    status: Status = "no server"
    detail: str = ""
    advice: str = ""
    models: Sequence[str] = ()


def print_models(base_url: str | None, api_key_env: str | None, *, as_json: bool) -> int:
    """Ask all servers for their models, and print what they say; return 0 if at least one can be used, else 1."""
    servers = [*probe_servers(base_url, api_key_env), _local_models()]
    good = any(server.status == "ready" for server in servers)
    if as_json:
        print_json({"ok": good, "servers": [server._asdict() for server in servers]})
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
    asked = [(preset, server_address(preset, environment)) for preset in presets]
    if base_url is not None:
        other = replace(OPENAI, name=OTHER, title="Another server", key_variable=api_key_env or "OPENAI_API_KEY")
        asked.insert(0, (replace(other, needs_key=False), base_url.rstrip("/")))
    states = [_StateOf(preset, url, environment.get(preset.key_variable, "").strip()) for preset, url in asked]
    # In threads that do not keep the process alive: looking up a name can't be cancelled.
    threads = Threads(len(states), name="codeact-models")
    jobs = [threads.submit(partial(_probe, state, time.monotonic() + deadline_s)) for state in states]
    wait(jobs, deadline_s)
    late = f"no answer in {deadline_s:g} s"
    return [
        job.result() if job.done() else state("no server", late, state.preset.advice)
        for job, state in zip(jobs, states, strict=True)
    ]


class _StateOf(NamedTuple):
    """Makes the description of a server."""

    preset: Preset
    address: str
    key: str

    def __call__(self, status: Status, detail: str, advice: str = "", models: Sequence[str] = ()) -> Server:
        preset, url = self.preset, without_login(self.address)
        known = (preset.name, preset.title, url, preset.key_variable, bool(self.key))
        return Server(*known, status, detail, advice, list(models))


def _probe(state: _StateOf, until: float) -> Server:
    preset, address, key = state
    variable = preset.key_variable
    no_key = state("no key", f"{variable} is not set", f"Set {variable}.")
    if not key and preset.needs_key:
        return no_key
    if not (key.isascii() and key.isprintable()):
        return state("no key", f"{variable} holds characters that no key has", "Copy the key again.")
    path, headers = "/models", {"Authorization": f"Bearer {key}"} if key else {}
    if preset.own_list:
        path, headers = "/models?limit=1000", {"x-api-key": key, "anthropic-version": "2023-06-01"}
    status, body = _request(address + path, headers, until)
    if isinstance(status, str):
        return state("no server", status, preset.advice)
    if status in (401, 403):
        return state("key refused", f"HTTP {status}", f"Check the key in {variable}.") if key else no_key
    names = _names_in(body) if status == 200 else None
    if names is None:
        problem = f"HTTP {status}" if status != 200 else "its answer is not a list of models"
        return state("no list", problem, "Is the address right? `codeact run` may work all the same.")
    prefix = "" if preset.name == OTHER else f"{preset.name}/"
    # A server that repeats the key must not have it printed.
    shown = [name for name in names if len(name) <= _MAX_NAME and not (key and key in name)]
    models = sorted({f"{prefix}{name.removeprefix('models/')}" for name in shown})
    count = format_count(len(models), "model")
    ready, detail = state("ready", count, models=models), f"{count}, none of which needs a key"
    advice = f"Set {variable} to any value: `codeact run` wants one."
    return ready if key or preset.name != OTHER else ready._replace(status="no key", detail=detail, advice=advice)


def _names_in(body: bytes) -> list[str] | None:
    """Return the names in a server's list of models; None if it is none."""
    try:
        answer: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    entries = answer.get("data", 0) if isinstance(answer, dict) else 0
    if not isinstance(entries, list | None):  # Ollama without a model says null
        return None
    return [str(entry["id"]) for entry in (entries or ())[:_MAX_MODELS] if isinstance(entry, dict) and entry.get("id")]


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

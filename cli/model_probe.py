"""Asks servers of models which models they have, all at the same time and with a short deadline."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx

from autogen_codeact.cli.model_choice import OPENAI, PRESETS, Preset, server_address
from autogen_codeact.cli.model_server import without_login
from autogen_codeact.sandbox.formatting import format_count

Status = Literal["ready", "no key", "key refused", "no server", "no list"]

OTHER = "--base-url"
"""Name of a server without a prefix."""
DEADLINE_S = 5.0
_MAX_BODY = 16 * 1024 * 1024
_MAX_MODELS = 5_000
_MAX_NAME = 200
_ERROR_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
_START = {"ollama": "Start it with `ollama serve`, or set OLLAMA_HOST."}


@dataclass(frozen=True)
class Server:
    """What is known of a server of models.

    Args:
        name: Its prefix in `--model`; `--base-url` for another server.
        title: What people call it.
        base_url: Its address, without a login.
        key_variable: Variable with the key.
        key_is_set: Whether that is set. The key itself is nowhere shown.
        status: Whether its models can be used now, or what is missing.
        detail: More of that, such as an error.
        advice: What to do; may be empty.
        models: Values for `--model`, as far as the server names its models.
    """

    name: str
    title: str
    base_url: str
    key_variable: str
    key_is_set: bool
    status: Status
    detail: str = ""
    advice: str = ""
    models: list[str] = field(default_factory=list)


def probe_servers(
    base_url: str | None,
    api_key_env: str | None,
    *,
    presets: Sequence[Preset] = PRESETS,
    environment: Mapping[str, str] = os.environ,
    deadline_s: float = DEADLINE_S,
) -> list[Server]:
    """Look at every server with a prefix, and at another one if its address is given.

    Only a server whose key is set, or that needs none, gets a request. It contains the key, as those of `codeact run` do.
    """
    until = time.monotonic() + deadline_s
    probes = [_Probe(preset, server_address(preset, environment), environment, until) for preset in presets]
    if base_url is not None:
        other = replace(OPENAI, name=OTHER, title="Another server", key_variable=api_key_env or "OPENAI_API_KEY")
        probes.insert(0, _Probe(replace(other, needs_key=False), base_url.rstrip("/"), environment, until))
    waiting = [(probe, _in_thread(probe)) for probe in probes]
    return [_result(probe, future, until, deadline_s) for probe, future in waiting]


class _Probe:
    def __init__(self, preset: Preset, address: str, environment: Mapping[str, str], until: float) -> None:
        self.preset = preset
        self.address = address
        self.until = until
        self.key = environment.get(preset.key_variable, "").strip()

    def run(self) -> Server:
        if (missing := self._missing()) is not None:
            return missing
        try:
            status, body = self._request()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as error:
            return self.unreachable(_ERROR_NUMBER.sub("", str(error)) or type(error).__name__)
        variable = self.preset.key_variable
        if status in (401, 403) and not self.key:
            return self.server("no key", f"{variable} is not set", f"Set {variable}.")
        if status in (401, 403):
            return self.server("key refused", f"HTTP {status}", f"Check the key in {variable}.")
        models = self._models(body) if status == 200 else None
        if models is None:
            problem = f"HTTP {status}" if status != 200 else "its answer is not a list of models"
            return self.server("no list", problem, "Is the address right? `codeact run` may work all the same.")
        return self._ready(models)

    def _missing(self) -> Server | None:
        """Return what keeps a request from being made, if anything does."""
        preset, variable = self.preset, self.preset.key_variable
        if not self.key and preset.needs_key:
            return self.server("no key", f"{variable} is not set", f"Set {variable}.")
        if not (self.key.isascii() and self.key.isprintable()):
            return self.server("no key", f"{variable} holds characters that no key has", "Copy the key again.")
        return None

    def unreachable(self, problem: str) -> Server:
        return self.server(
            "no server", problem, _START.get(self.preset.name, "Is it running, and is the address right?")
        )

    def _ready(self, models: list[str]) -> Server:
        count = format_count(len(models), "model")
        if self.key or self.preset.name != OTHER:
            return replace(self.server("ready", count), models=models)
        advice = f"Set {self.preset.key_variable} to any value: `codeact run` wants one."
        return replace(self.server("no key", f"{count}, none of which needs a key", advice), models=models)

    def server(self, status: Status, detail: str, advice: str = "") -> Server:
        preset = self.preset
        url = without_login(self.address)
        return Server(preset.name, preset.title, url, preset.key_variable, bool(self.key), status, detail, advice)

    def _request(self) -> tuple[int, bytes]:
        if urlsplit(self.address).scheme not in ("http", "https"):
            raise ValueError("an address begins with http:// or https://")
        path, headers = "/models", {}
        if self.preset.own_list:
            path, headers = "/models?limit=1000", {"x-api-key": self.key, "anthropic-version": "2023-06-01"}
        elif self.key:
            headers = {"Authorization": f"Bearer {self.key}"}
        # Redirections are not followed: they could lead the key to another server.
        with (
            httpx.Client(timeout=DEADLINE_S, follow_redirects=False) as client,
            client.stream("GET", self.address + path, headers=headers) as answer,
        ):
            body = b""
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > _MAX_BODY or time.monotonic() > self.until:
                    raise ValueError("its list of models is too long")
            return answer.status_code, body

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
        prefix = "" if self.preset.name == OTHER else f"{self.preset.name}/"
        # A server that repeats the key must not have it printed.
        shown = [name for name in names if len(name) <= _MAX_NAME and not (self.key and self.key in name)]
        return sorted({f"{prefix}{name.removeprefix('models/')}" for name in shown})


def _in_thread(probe: _Probe) -> Future[Server]:
    """Start a probe in a thread that does not keep the process alive: looking up a name can't be cancelled."""
    future: Future[Server] = Future()

    def run() -> None:
        try:
            future.set_result(probe.run())
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            future.set_exception(error)

    threading.Thread(target=run, name=f"probe-{probe.preset.name}", daemon=True).start()
    return future


def _result(probe: _Probe, future: Future[Server], until: float, deadline_s: float) -> Server:
    try:
        return future.result(max(0.0, until - time.monotonic()))
    except TimeoutError:
        return probe.unreachable(f"no answer in {deadline_s:g} s")

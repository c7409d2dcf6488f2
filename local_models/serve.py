"""The child process of a local model: llama.cpp's server on loopback, which ends with its parent.

It reads its settings from the first line of its standard input, prints the server's address, and ends when the input ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import urllib.request
from typing import Any

import xllamacpp

_SMALL = 512 * 1024**2
_SLOTS_TIMEOUT_S = 60.0


def main() -> None:
    """Serve until the parent has ended, however it ends."""
    settings = json.loads(os.read(0, 65_536))
    # Loading a model takes minutes, in which no Python code runs. The kernel sends SIGIO, which ends this process, when the
    # pipe is closed because the parent has ended.
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([0], [], [], 0)[0]:
        return  # it has ended before that
    server = _serve(settings)
    address = {"url": server.listening_address, "key": settings["key"], "context": _context(server, settings["key"])}
    print(json.dumps(address), flush=True)  # noqa: T201 - the parent reads it
    os.read(0, 1)
    os._exit(0)  # where there is no SIGIO for pipes; the server's threads would go on


def _serve(settings: dict[str, Any]) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.model_alias = {settings["name"]}
    params.n_ctx = settings["context"]
    params.api_keys = [settings["key"]]
    params.port = 0
    params.ui = False
    params.n_parallel = 1
    params.cache_ram_mib = 256  # by default it keeps up to 8 GiB of earlier conversations
    params.verbosity = -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = _threads(settings["path"])
    return xllamacpp.Server(params)


def _context(server: Any, key: str) -> int:
    """Return the tokens that fit into the context: at most as many as the model was trained with."""
    request = urllib.request.Request(f"{server.listening_address}/slots", headers={"Authorization": f"Bearer {key}"})  # noqa: S310
    without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with without_proxy.open(request, timeout=_SLOTS_TIMEOUT_S) as answer:
        return int(json.load(answer)[0]["n_ctx"])


def _threads(path: str) -> int:
    """Return how many threads compute. They wait for each other actively: more than one only slow a small model down."""
    if os.path.getsize(path) < _SMALL:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    main()

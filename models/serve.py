"""The child process of a local model: llama.cpp's server on loopback, which ends with its parent.

It reads its settings from the first line of its standard input, prints the server's address, and ends when the input ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

_SMALL = 512 * 1024**2


def main() -> None:
    """Serve until the parent has ended, however it ends."""
    settings = json.loads(sys.stdin.readline())
    ended = threading.Thread(target=_end_with_parent, daemon=True)
    ended.start()
    server = _serve(settings)
    print(server.listening_address, flush=True)  # noqa: T201 - the parent reads it
    ended.join()


def _serve(settings: dict[str, Any]) -> Any:
    import xllamacpp  # noqa: PLC0415 - after the thread has started: loading it takes long

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


def _threads(path: str) -> int:
    """Return how many threads compute. They wait for each other actively: more than one only slow a small model down."""
    if os.path.getsize(path) < _SMALL:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)  # the server's threads would go on


if __name__ == "__main__":
    main()

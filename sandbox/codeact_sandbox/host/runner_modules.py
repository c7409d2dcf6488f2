"""The runner's modules on their way into a sandbox: compiled if its Python takes them, else as source."""

from __future__ import annotations

import importlib.util
import json
import marshal
import sys
import threading
from collections.abc import Hashable
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from codeact_sandbox.host.bootstrap import MODULES
from codeact_sandbox.host.connection import Connection
from codeact_sandbox.host.protocol import pack
from codeact_sandbox.runner.shared import wire
from codeact_sandbox.types.errors import SandboxProtocolError

# The runner's are about 0.5 MB.
MAX_COMPILED = 2 * 1024 * 1024
MAX_KEPT = 16
RUNNER = Path(__file__).parents[1] / "runner"
# Frames with modules that sandboxes have compiled, by the Python that did: only sandboxes with the same Python get them.
_kept: dict[Hashable, bytes] = {}
_kept_lock = threading.Lock()


class RunnerModules:
    """Sends a sandbox the runner's modules.

    Code of the same Python is sent compiled, because compiling takes a sandbox longer than everything else in its start. A
    sandbox that can't use what it gets requests the sources, compiles them, and returns the result before any other code runs in
    it. The result is neither examined nor executed here: it is only sent to later sandboxes with the same Python.
    """

    def __init__(self, connection: Connection, python: Hashable | None) -> None:
        self._connection = connection
        self._python = python
        self._expected: bytes | None = wire.MODULE_SOURCES
        connection.handlers[wire.MODULE_SOURCES] = self._on_request
        connection.handlers[wire.COMPILED_MODULES] = self._on_compiled

    def send(self) -> None:
        """Send them compiled: by an earlier sandbox with the same Python, or by this program's."""
        with _kept_lock:
            kept = _kept.get(self._python) if self._python is not None else None
        self._connection.send(kept or compiled_frame())

    def forget(self) -> None:
        """Keep nothing of this Python: its start has failed, and the next one is to compile again."""
        with _kept_lock:
            _kept.pop(self._python, None)

    # In the connection's thread

    def _on_request(self, _ident: int, _payload: bytes) -> None:
        self._check(wire.MODULE_SOURCES)
        self._expected = wire.COMPILED_MODULES
        self._connection.send(sources_frame())

    def _on_compiled(self, _ident: int, payload: bytes) -> None:
        self._check(wire.COMPILED_MODULES)
        self._expected = None
        if len(payload) > MAX_COMPILED:
            raise SandboxProtocolError(
                f"the sandbox sent {len(payload):,} bytes of compiled modules; {MAX_COMPILED:,} are allowed"
            )
        if self._python is None:
            return
        with _kept_lock:
            _kept.pop(self._python, None)
            _kept[self._python] = pack(wire.COMPILED_MODULES, 0, None, payload)
            while len(_kept) > MAX_KEPT:
                del _kept[next(iter(_kept))]

    def _check(self, kind: bytes) -> None:
        if self._expected is not kind:
            raise SandboxProtocolError(f"the sandbox sent an unexpected {kind!r}")


@cache
def compiled_frame() -> bytes:
    """Return the frame with the modules as this program's Python compiles them."""
    compiled = [(name, _compiled(name, f"<codeact {name}>")) for name in MODULES]
    return pack(wire.COMPILED_MODULES, 0, None, importlib.util.MAGIC_NUMBER + marshal.dumps(compiled))


@cache
def sources_frame() -> bytes:
    """Return the frame with the modules' sources, for every other Python."""
    return pack(wire.MODULE_SOURCES, 0, None, json.dumps(_sources()).encode())


@cache
def _sources() -> list[tuple[str, str]]:
    return [(name, _path(name).read_text(encoding="utf-8")) for name in MODULES]


def _path(name: str) -> Path:
    return RUNNER / f"{name.replace('.', '/')}.py"


def _compiled(name: str, filename: str) -> CodeType:
    # The level of optimization is the one that the boot code uses: 0.
    if sys.flags.optimize:
        return compile(dict(_sources())[name], filename, "exec", dont_inherit=True, optimize=0)
    # From the bytecode file beside the source, if it is there: to compile them all takes 0.1 s.
    found = SourceFileLoader(name, str(_path(name))).get_code(name)
    assert found is not None, "a source file has code"
    return _renamed(found, filename)


def _renamed(code: CodeType, filename: str) -> CodeType:
    """Return code that names another file as its source; a sandbox is not told where this program is installed."""
    inner = tuple(_renamed(each, filename) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=filename, co_consts=inner)

"""The runner's modules on their way into a sandbox: compiled if its Python takes them, else as source."""

from __future__ import annotations

import importlib.util
import json
import marshal
import sys
import threading
from collections.abc import Hashable, Mapping
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from codeact_sandbox.host.connection import Connection
from codeact_sandbox.host.protocol import pack
from codeact_sandbox.runner.shared import wire
from codeact_sandbox.types.errors import SandboxProtocolError

# By folder, in the order in which they import each other.
MODULES = [
    "shared.wire",
    "shared.system",
    "shared.folders",
    "shared.packages",
    "worker.stdio",
    "worker.displays",
    "worker.display",
    "worker.figures",
    "worker.ipython_display",
    "worker.imports",
    "worker.execution",
    "worker.tool_client",
    "worker.tools",
    "worker.helpers",
    "worker.checkpoint_fork",
    "worker.cell_text",
    "worker.values",
    "worker.commands",
    "worker.magics",
    "worker.ipython_shell",
    "worker.small_shell",
    "worker.cell_loop",
    "worker.definitions",
    "worker.cells",
    "worker.interpreter",
    "worker.shell_state",
    "worker.trees",
    "worker.tar_files",
    "worker.file_service",
    "worker.worker",
    "zygote.zygote",
    "supervisor.files",
    "supervisor.session_environment",
    "supervisor.block_report",
    "supervisor.output_capture",
    "supervisor.tool_relay",
    "supervisor.block",
    "supervisor.checkpoints",
    "supervisor.event_loop",
    "supervisor.process_block",
    "supervisor.job",
    "supervisor.channels",
    "supervisor.proxy",
    "supervisor.scheduler",
    "supervisor.session",
    "supervisor.session_block",
    "supervisor.worker_processes",
    "supervisor.supervisor",
]

# It is run by `python3 -I -S`, or after `_AGAIN` by `python3 -s -S`. First it removes all folders that user code can write to
# from the search path of modules.
BOOT = """\
import sys
found = sys.path[:]
sys.path[:] = [entry for entry in found if entry.startswith((sys.base_prefix + "/", sys.base_exec_prefix + "/"))]
import gc
gc.disable()  # nothing of what comes now is garbage; the supervisor enables it
import builtins, marshal, os, struct, types
if sys.version_info < (3, 8):
    sys.exit("the sandbox needs Python 3.8 or later, this image has " + sys.version.split()[0])
def read(size):
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return data
def frame():
    while True:
        kind, ident, size = struct.unpack("!cII", read(9))
        if size > 8388608:
            sys.exit("a frame is too large")
        data = read(size)
        if kind != b"L":  # with a short lease, the host's signs of life come while this compiles
            return kind, ident, data
def send(kind, data):
    data = struct.pack("!cII", kind, 0, len(data)) + data
    while data:
        data = data[os.write(1, data):]
def add_package(name):
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = []
    return package
runner = add_package("codeact_runner")
for folder in ("shared", "worker", "zygote", "supervisor"):
    setattr(runner, folder, add_package("codeact_runner." + folder))
compiled, configuration = frame()[2], frame()
magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
if compiled.startswith(magic):
    modules = marshal.loads(memoryview(compiled)[4:])
else:
    import json
    send(b"B", b"")
    sources = json.loads(frame()[2].decode())
    modules = [(name, compile(source, "<codeact " + name + ">", "exec", 0, True, 0)) for name, source in sources]
    send(b"M", magic + marshal.dumps(modules))
    del sources
own = dict(vars(builtins))
for name, code in modules:
    folder, _, last = name.partition(".")
    package = getattr(runner, folder)
    module = types.ModuleType(package.__name__ + "." + last)
    module.__package__ = package.__name__
    module.__file__ = "<codeact " + name + ">"
    module.__builtins__ = own
    sys.modules[module.__name__] = module
    setattr(package, last, module)
    exec(code, module.__dict__)
del compiled, modules, own, code, name, module, package, folder, last
runner.supervisor.supervisor.main(configuration, found)
"""


# `-I` ignores every variable of Python, and no option replaces PYTHONHASHSEED. So the isolated interpreter replaces itself by
# another one, which sees only those variables of Python that the host has checked: a variable of the image, or one with a folder,
# could make it run files that user code has left there. The supervisor restores the image's variables for the code.
_AGAIN = """\
import sys
if sys.flags.isolated:
    import os
    variables = {"CODEACT_" + name if name.startswith("PYTHON") else name: value for name, value in os.environ.items()}
    variables.update(%r)
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().split(b"\\0")[:-1]
    words[words.index(b"-I")] = b"-s"
    os.execve(sys.executable, words, variables)
"""
# The runner's are about 0.5 MB.
MAX_COMPILED = 2 * 1024 * 1024
MAX_KEPT = 16
RUNNER = Path(__file__).parents[1] / "runner"
# Frames with modules that sandboxes have compiled, by the Python that did: only sandboxes with the same Python get them.
_kept: dict[Hashable, bytes] = {}
_kept_lock = threading.Lock()


def boot(variables: Mapping[str, str]) -> str:
    return (_AGAIN % dict(variables) if variables else "") + BOOT


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

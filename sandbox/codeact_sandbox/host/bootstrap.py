"""What a sandbox's interpreter runs first: it receives the runner's modules over the stream and starts the supervisor."""

from __future__ import annotations

from collections.abc import Mapping

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
    "worker.worker",
    "zygote.zygote",
    "supervisor.files",
    "supervisor.session_environment",
    "supervisor.block_report",
    "supervisor.cpu_time",
    "supervisor.output_capture",
    "supervisor.tool_relay",
    "supervisor.block",
    "supervisor.checkpoints",
    "supervisor.event_loop",
    "supervisor.process_block",
    "supervisor.job",
    "supervisor.channels",
    "supervisor.ports",
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


def boot(variables: Mapping[str, str]) -> str:
    """Return the source that a sandbox's interpreter runs first."""
    return (_AGAIN % dict(variables) if variables else "") + BOOT

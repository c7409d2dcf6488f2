"""Tries escapes and leaks (`escapes.py`) in each variant, and looks on the host at what came of them."""

import ast
import asyncio
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

from .harness import Failed

SOURCE = (Path(__file__).parent / "escapes.py").read_text(encoding="utf-8")
ANSWER_TIMEOUT_S = 150
MOST_OUTPUT = 100_000_000
"""Characters of an answer; more of the 200 million that are sent means that nothing bounds them."""
MOST_EVIDENCE = 1_000_000
SETTLE_S = 1
SHARED_MEMORY_KEY = 0x0B0A2D
"""Of a segment that is readable for everybody."""
READS = ("network", "files_read", "files_through_proc", "processes_see", "processes_shared_memory", "secrets")
"""Their evidence is the host's secret; that of `network_raw_packets` is not."""


def names():
    """Return the functions of escapes.py with their titles, in order."""
    groups = ("network", "files", "processes", "kernel", "limits", "secrets")
    nodes = ast.parse(SOURCE).body
    return {
        node.name: ast.get_docstring(node)
        for node in nodes
        if isinstance(node, ast.FunctionDef) and node.name.split("_")[0] in groups
    }


def code_of(name, facts):
    """Return a program that tries one escape."""
    return f"{SOURCE}\nHOST.update({facts!r})\ntry_one({name!r})\n"


class Host:
    """What code in a sandbox may not get at: servers, files, a process and memory, all with one secret.

    Args:
        share: Whether there is a segment of shared memory.
    """

    def __init__(self, share=True):
        self.share = share

    def __enter__(self):
        self.facts = {}
        self.secret, self.mark = f"secret-{secrets.token_hex(8)}", f"mark-{secrets.token_hex(8)}"
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            folder.chmod(0o755)
            self.files = folder / "secret", folder / "writable"
            self.files[0].write_text(self.secret)
            self.files[1].touch()
            self.files[1].chmod(0o666)
            abstract = f"board-{secrets.token_hex(8)}"
            ports = [_serve(stack, address, self.secret) for address in (("", 0), f"\0{abstract}")]
            self._start_process()
            stack.callback(lambda: (self.process.kill(), self.process.wait()))
            if self.share:
                stack.callback(_share(self.secret.encode()))
            self.facts |= {
                "port": ports[0],
                "addresses": subprocess.run(
                    ["hostname", "-I"], capture_output=True, text=True, check=False
                ).stdout.split(),
                "abstract": abstract,
                "secret_file": str(self.files[0]),
                "writable_file": str(self.files[1]),
                "shared_memory": SHARED_MEMORY_KEY,
                "mark": self.mark,
            }
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def _start_process(self):
        code = "import time; time.sleep(100_000)"
        self.process = subprocess.Popen([sys.executable, "-c", code, f"sleep-{self.secret}"])
        self.facts["process"] = self.process.pid

    def tidy(self):
        """Undo what an escape that succeeded has left."""
        self.files[1].write_text("")
        for process in _processes_with(self.mark):
            os.kill(process, signal.SIGKILL)
        if self.process.poll() is not None:
            self._start_process()

    def got(self, name, output, length):
        """Return whether an escape succeeded, by what it printed and what is to be seen on the host."""
        if name == "files_write":
            return self.files[1].read_text() == self.mark
        if name == "processes_signal":
            return self.process.poll() is not None
        if name == "limits_output":
            return length > MOST_OUTPUT
        if name == "limits_survive":
            return bool(_processes_with(self.mark))
        evidence = self.secret if name.startswith(READS) and name != "network_raw_packets" else "GOT done"
        return evidence in output


def _serve(stack, address, text):
    """Answer each connection with a text; return the port."""
    server = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    stack.callback(server.close)
    server.bind(address)
    server.listen()

    def serve():
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                with client, suppress(OSError):
                    client.sendall(text.encode())

    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()[1]


def _share(content):
    """Make a segment of System V shared memory that everybody may read; return what removes it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    identity = libc.shmget(SHARED_MEMORY_KEY, 4096, 0o1000 | 0o666)
    if identity < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    ctypes.memmove(libc.shmat(identity, None, 0), content, len(content))
    return lambda: libc.shmctl(identity, 0, None)


def _processes_with(mark):
    """Return the processes of the host with a word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


async def contain(bench, variants, host, escapes):
    """Try escapes in each variant: {variant: {escape: whether it was stopped}}. A sandbox that one broke is replaced."""
    found = {}
    for variant in variants:
        keys, found[variant] = None, {}
        for name in escapes:
            keys = keys or await bench.open(variant)
            if keys is None:
                break
            try:
                code = code_of(name, host.facts)
                request = {"key": keys[0], "language": "python", "code": code, "most": MOST_EVIDENCE}
                output, length = await bench.where[variant].request("output", timeout_s=ANSWER_TIMEOUT_S, **request)
            except Failed as error:
                print(f"{variant}, {name}: {error}", file=sys.stderr)
                output, length = "", 0
            if name.startswith("limits"):
                await bench.close(variant, keys)
                keys = None
                await asyncio.sleep(SETTLE_S)
            found[variant][name] = not host.got(name, output, length)
            host.tidy()
        await bench.close(variant, keys)
    return found

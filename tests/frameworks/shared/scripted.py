"""A scripted model for frameworks, and the programs of docs/integrations.md. Importable in each environment."""

import importlib.util
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import docker

ROOT = Path(__file__).parents[3]
_spec = importlib.util.spec_from_file_location("openai_server", ROOT / "tests" / "openai_server.py")
_module = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _module
_spec.loader.exec_module(_module)
OpenAIServer, Reply = _module.OpenAIServer, _module.Reply

FIGURE = """
import struct, zlib
chunk = lambda kind, data: struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))
class Figure:
    def _repr_png_(self):
        head = chunk(b"IHDR", struct.pack("!IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
        return b"\\x89PNG\\r\\n\\x1a\\n" + head + chunk(b"IDAT", zlib.compress(b"\\0\\0")) + chunk(b"IEND", b"")
Figure()
"""
# Code that shows an image, without packages.


def price(item: str) -> float:
    """Return the price of an item."""
    return {"tea": 4.5}[item]


def call(tool, **arguments):
    """Return the answer of a model that calls a tool."""
    return Reply(tool_calls=((tool, arguments),))


def tool_results(server):
    """Return what the model was told of its calls, in the last request."""
    return [message["content"] for message in server.requests[-1]["messages"] if message["role"] == "tool"]


def program(heading):
    """Return the first program below a heading of the page."""
    page = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    section = re.split(rf"^#+ {re.escape(heading)}$", page, flags=re.MULTILINE)[1]
    return re.search(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]


def run_program(heading, server, folder, timeout=100):
    """Run the first program below a heading of the page, as printed; return its output.

    Args:
        heading: The heading.
        server: A started `OpenAIServer`, which answers as OpenAI.
        folder: The working directory.
        timeout: Seconds that it may take.
    """
    return run_code(program(heading), server, folder, timeout)


def run_code(code, server, folder, timeout=100):
    """Run a program as `run_program` does; return its output."""
    environment = {**os.environ, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "not-a-key"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def sandboxes(pid=None):
    """Return the sandboxes that a process has, of both engines. Default: this process."""
    pid = pid or os.getpid()
    found = [path.parent.name for path in Path("/proc").glob("[0-9]*/stat") if _is_bubblewrap(path, pid)]
    with suppress(docker.errors.DockerException), closing(docker.from_env()) as engine:
        label = f"org.autogen-codeact.owner={socket.gethostname()}:{pid}"
        found += [each["Id"] for each in engine.api.containers(all=True, filters={"label": label})]
    return found


def _is_bubblewrap(path, parent):
    try:
        name, _, rest = path.read_text().partition("(")[2].rpartition(")")
    except OSError:
        return False
    return name == "bwrap" and rest.split()[1] == str(parent) and rest.split()[0] != "Z"


def wait_until(condition, timeout=30.0):
    """Wait until a condition holds, and return whether it does."""
    until = time.monotonic() + timeout
    while not (held := condition()) and time.monotonic() < until:
        time.sleep(0.05)
    return held

"""A real Jupyter kernel for tests of notebooks."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

DEADLINE_S = 100


@dataclass
class Ran:
    """What a cell did.

    Args:
        status: `ok` or `error`, as the kernel has answered.
        text: What it wrote to standard output.
        warned: What it wrote to standard error.
        shown: The bundles that it has displayed and its value, in order; an update replaces the one that it updates.
        error: Name, message and traceback of its error, if it has one.
    """

    status: str = ""
    text: str = ""
    warned: str = ""
    shown: list[dict[str, Any]] = field(default_factory=list)
    error: tuple[str, str, str] | None = None
    cleared: bool = False
    idents: list[str | None] = field(default_factory=list)

    def add(self, kind: str, content: dict[str, Any]) -> None:
        """Take a message of the kernel."""
        ident = content.get("transient", {}).get("display_id")
        if self.cleared and kind != "clear_output":
            self.text, self.shown, self.idents, self.cleared = "", [], [], False
        if kind == "clear_output":
            self.cleared = True
        elif kind == "stream" and content["name"] == "stdout":
            self.text += content["text"]
        elif kind == "stream":
            self.warned += content["text"]
        elif kind == "update_display_data":
            self.shown[self.idents.index(ident)] = content["data"]
        elif kind in ("display_data", "execute_result"):
            self.idents.append(ident)
            self.shown.append(content["data"])
        elif kind == "error":
            self.error = content["ename"], content["evalue"], "\n".join(content["traceback"])

    @property
    def page(self) -> str:
        """All HTML that is shown."""
        return "\n".join(bundle.get("text/html", "") for bundle in self.shown)


class Kernel:
    """A running kernel.

    Args:
        manager: Its manager.
        client: A client of it.
    """

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager, self.client = manager, client

    def run(self, code: str, each: Callable[[Ran], object] = lambda _: None) -> Ran:
        """Run a cell.

        Args:
            code: Its code.
            each: Called with what the cell has done so far after each of the kernel's messages.
        """
        number, ran, idle = self.client.execute(code), Ran(), False
        until = time.monotonic() + DEADLINE_S
        while not idle:
            message = self.client.get_iopub_msg(timeout=max(until - time.monotonic(), 0.1))
            if message["parent_header"].get("msg_id") != number:
                continue
            ran.add(message["msg_type"], message["content"])
            idle = message["content"].get("execution_state") == "idle"
            each(ran)
        while not ran.status:
            reply = self.client.get_shell_msg(timeout=max(until - time.monotonic(), 0.1))
            if reply["parent_header"].get("msg_id") == number:
                ran.status = reply["content"]["status"]
        return ran


@contextmanager
def started_kernel(folder: Path) -> Iterator[Kernel]:
    """Start a kernel, and end it at the end.

    Args:
        folder: For the files that Jupyter and IPython write.
    """
    manager = KernelManager(kernel_name="python3", connection_file=str(folder / "connection.json"))
    environment = {"IPYTHONDIR": str(folder / "ipython"), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    manager.start_kernel(
        env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=str(folder)
    )
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=DEADLINE_S)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
        manager.cleanup_resources()

"""Runs the cells of a notebook in a session, or in an IPython kernel inside a sandbox with the same options."""

import base64
import json
import textwrap
from dataclasses import dataclass

from codeact_sandbox import AsyncSandbox, Limits

RECORD = "reference-of-the-cells.json"
SLACK_S = 120.0


@dataclass(frozen=True)
class Settings:
    """What both runs have in common.

    Args:
        backend: `docker` or `bubblewrap`.
        packages: Added to the default image; with none of them, `ipykernel`. Nothing with bubblewrap.
        python: bubblewrap's interpreter.
        timeout: Seconds for one cell.
        memory: Limit of each sandbox.
    """

    backend: str = "docker"
    packages: tuple[str, ...] = ()
    python: str | None = None
    timeout: float = 20.0
    memory: str = "2g"

    def sandbox(self, work_dir, *, mode="session", kernel=True):
        """Return a sandbox for one notebook.

        Args:
            work_dir: The copy of the notebook's folder.
            mode: As for `AsyncSandbox`.
            kernel: Whether the image has `ipykernel` (default True).
        """
        options = {"work_dir": work_dir, "mode": mode, "timeout": self.timeout, "limits": Limits(memory=self.memory)}
        if self.backend == "docker":
            options["packages"] = list(self.packages or ("ipykernel",)) if kernel else []
            if mode == "process":
                # The kernel's ZeroMQ sets the priority of its threads by their numbers, which the default list refuses.
                options["seccomp"] = "engine"
        elif self.python:
            options["python"] = self.python
        return AsyncSandbox(self.backend, **options)


async def in_session(cells, work_dir, settings, *, kernel=True):
    """Run cells in a session; return what each did.

    Args:
        cells: Their code.
        work_dir: A copy of the notebook's folder.
        settings: What the kernel has too.
        kernel: Whether the image has `ipykernel` (default True).
    """
    done = []
    async with settings.sandbox(work_dir, kernel=kernel) as box:
        for code in cells:
            result = await box.run(code)
            end = result.outcome
            if end == "error" and result.error is not None:
                end = result.error.type
            images = [display.data["image/png"] for display in result.displays if "image/png" in display.data]
            done.append(
                {
                    "end": end,
                    "value": result.value_repr,
                    "text": result.output,
                    "error": result.error.message if result.error else "",
                    "figures": [base64.b64encode(image).decode() for image in images],
                }
            )
    return done


async def in_kernel(cells, work_dir, settings):
    """Run cells in an IPython kernel inside a sandbox; return what each did.

    Args:
        cells: Their code.
        work_dir: A copy of the notebook's folder.
        settings: What the session has too.
    """
    code = f"CELLS, TIMEOUT, RECORD = {cells!r}, {settings.timeout!r}, {RECORD!r}\n{DRIVER}"
    async with settings.sandbox(work_dir, mode="process") as box:
        result = await box.run(code, timeout=len(cells) * settings.timeout + SLACK_S)
    if result.outcome != "ok":
        raise RuntimeError(f"The kernel could not be run: {result.output[-1000:]}")
    return json.loads((work_dir / RECORD).read_text())


# Runs in the sandbox, where ipykernel brings jupyter_client along.
DRIVER = textwrap.dedent("""
    import json, os, queue, sys, tempfile, time
    from jupyter_client.manager import KernelManager

    os.environ.pop("MPLBACKEND", None)  # a kernel chooses its own backend, as it does for a notebook
    place = tempfile.mkdtemp()
    manager = KernelManager(transport="ipc", ip=place + "/ipc", connection_file=place + "/kernel.json")
    spec = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]

    def start():
        manager.kernel_spec.argv = spec
        manager.start_kernel(env=dict(os.environ))
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        return client

    def run(client, code):
        did = {"end": "ok", "value": None, "text": "", "error": "", "figures": []}
        request, deadline, interrupted = client.execute(code, allow_stdin=False), time.monotonic() + TIMEOUT, False
        while True:
            try:
                message = client.get_iopub_msg(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                did["end"] = "timeout"
                if interrupted:
                    return did, False
                manager.interrupt_kernel()
                interrupted, deadline = True, time.monotonic() + 5
                continue
            kind, content = message["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != request:
                continue
            if kind == "status" and content["execution_state"] == "idle":
                return did, True
            if kind == "stream":
                did["text"] += content["text"]
            elif kind == "error" and not interrupted:
                did["end"], did["error"] = content["ename"], content["evalue"]
            elif kind in ("execute_result", "display_data"):
                if kind == "execute_result":
                    did["value"] = content["data"].get("text/plain")
                if "image/png" in content["data"]:
                    did["figures"].append(content["data"]["image/png"].replace("\\n", ""))

    from jupyter_client.kernelspec import KernelSpec
    manager._kernel_spec = KernelSpec(argv=spec, display_name="kernel", language="python")
    client, found = start(), []
    for code in CELLS:
        did, alive = run(client, code)
        found.append(did)
        if not alive or not manager.is_alive():
            client.stop_channels()
            manager.restart_kernel(now=True)
            client = manager.client()
            client.start_channels()
            client.wait_for_ready(timeout=60)
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    with open(RECORD, "w") as file:
        json.dump(found, file)
""")

"""Make `docs/images/notebook.png`: the sample notebook in JupyterLab, with its table and its figures.

It needs Chromium, Playwright (of the extra `dev`), a sandbox, and JupyterLab in an environment of its own:

    python -m venv /tmp/jupyterlab && /tmp/jupyterlab/bin/pip install jupyterlab
    .venv/bin/python docs/make_notebook_screenshot.py /tmp/jupyterlab/bin/jupyter-lab

The kernel is the interpreter that runs this script. The screenshot has the notebook's cells from `--from` on.
"""

import argparse
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "samples" / "notebook.ipynb"
DEADLINE_S = 120
HAS_STARTED = re.compile(r"\[[\d*]+\]")
HAS_RUN = re.compile(r"\[\d+\]")
KERNEL = "Python 3 (ipykernel)"


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def jupyterlab(command: str, folder: Path) -> Iterator[str]:
    """Serve a folder, and yield the address of its sample notebook.

    Args:
        command: The program `jupyter-lab`.
        folder: The folder.
    """
    kernel = folder / ".jupyter" / "data" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    spec = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps({**spec, "display_name": KERNEL}))
    settings = folder / ".jupyter" / "settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    (settings / "tracker.jupyterlab-settings").write_text('{"autoStartDefaultKernel": true}')  # instead of a question
    port, token = free_port(), secrets.token_hex(16)
    options = [f"--ServerApp.root_dir={folder}", f"--port={port}", "--no-browser", "--allow-root"]
    homes = {f"JUPYTER_{name}_DIR": str(folder / ".jupyter" / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    with subprocess.Popen(
        [command, *options, f"--IdentityProvider.token={token}"],
        env={
            **os.environ,
            **homes,
            "JUPYTER_PATH": homes["JUPYTER_DATA_DIR"],
            "JUPYTERLAB_SETTINGS_DIR": str(folder / ".jupyter" / "settings"),
            "IPYTHONDIR": str(folder / ".ipython"),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            base = f"http://127.0.0.1:{port}"
            wait_for(f"{base}/api?token={token}")
            start_kernel(base, token)
            yield f"{base}/doc/tree/{SAMPLE.name}?token={token}"
        finally:
            server.terminate()


def wait_for(address: str) -> None:
    """Wait until a server answers."""
    until = time.monotonic() + DEADLINE_S
    while True:
        try:
            with urllib.request.urlopen(address, timeout=10):  # noqa: S310 - of the server that was just started
                return
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def start_kernel(base: str, token: str) -> None:
    """Start the kernel of the notebook, so that JupyterLab finds it and does not ask for one."""
    session = {"path": SAMPLE.name, "name": SAMPLE.name, "type": "notebook", "kernel": {"name": "python3"}}
    request = urllib.request.Request(  # noqa: S310 - the address is that of the server that was just started
        f"{base}/api/sessions",
        data=json.dumps(session).encode(),
        headers={"Authorization": f"token {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=DEADLINE_S):  # noqa: S310 - as above
        pass


def run_all(page: Page) -> None:
    """Run the notebook, and wait until its last cell has run."""
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=DEADLINE_S * 1000)
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").first.wait_for(timeout=DEADLINE_S * 1000)
    page.add_style_tag(content=".Toastify { display: none }")  # a question about news of Jupyter
    started = page.locator(".jp-CodeCell .jp-InputPrompt").filter(has_text=HAS_STARTED)
    for _ in range(10):  # nothing runs before the page is connected to the kernel
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.wait_for_timeout(3000)
        if started.count():
            break
    last = page.locator(".jp-CodeCell").last.locator(".jp-InputPrompt").filter(has_text=HAS_RUN)
    last.wait_for(timeout=DEADLINE_S * 1000)


def take(command: str, target: Path, *, dark: bool, height: int, first: int, last: int) -> None:
    """Run the notebook in JupyterLab and store a screenshot of some of its cells."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        notebook = json.loads(SAMPLE.read_text())
        (folder / SAMPLE.name).write_text(json.dumps(notebook))
        with jupyterlab(command, folder) as address:
            chromium = shutil.which("chromium")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 900, "height": height}, color_scheme="dark" if dark else "light")
            page.goto(address)
            run_all(page)
            cells = page.locator(".jp-Notebook .jp-Cell")
            cells.nth(first).scroll_into_view_if_needed()
            page.wait_for_timeout(1500)  # frames are drawn after their cells
            top, bottom = cells.nth(first).bounding_box(), cells.nth(last).bounding_box()
            assert top is not None
            assert bottom is not None
            box = {
                "x": top["x"],
                "y": top["y"],
                "width": top["width"],
                "height": bottom["y"] + bottom["height"] - top["y"],
            }
            page.screenshot(path=target, clip=box)  # type: ignore[arg-type]
            browser.close()
    with Image.open(target) as screenshot:  # few colours make it a third of the size
        screenshot.convert("RGB").quantize(128).save(target, optimize=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jupyterlab", help="the program jupyter-lab of that environment")
    parser.add_argument("--target", type=Path, default=ROOT / "docs" / "images" / "notebook.png")
    parser.add_argument("--dark", action="store_true", help="with dark colours")
    parser.add_argument("--height", type=int, default=3600, help="of the window, in pixels")
    parser.add_argument("--from", dest="first", type=int, default=2, help="the first cell of the screenshot, from 0")
    parser.add_argument("--to", dest="last", type=int, default=8, help="its last cell")
    given = parser.parse_args()
    take(given.jupyterlab, given.target, dark=given.dark, height=given.height, first=given.first, last=given.last)

"""Makes the screenshots of the documentation: terminals and the viewer's pages, with recorded models and real code.

make screenshots                                  all of them; needs Chromium, tmux and a sandbox
python docs/make_screenshots.py demo run          only those whose names begin with these words
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

IMAGES = Path(__file__).parent / "images"
SAMPLES = Path(__file__).parents[1] / "samples"
CODEACT = Path(sys.executable).with_name("codeact")
WAIT_S = 120.0
MAX_BYTES = 200_000
COLOURS = 128
COLUMNS = 100
THEME = TerminalTheme(
    (27, 29, 33),
    (218, 221, 226),
    [
        (45, 49, 57),
        (240, 113, 103),
        (126, 196, 116),
        (226, 178, 94),
        (104, 166, 240),
        (191, 140, 236),
        (84, 190, 200),
        (218, 221, 226),
    ],
    [
        (126, 133, 144),
        (255, 138, 128),
        (150, 218, 140),
        (244, 200, 120),
        (130, 186, 255),
        (210, 165, 250),
        (110, 214, 222),
        (240, 242, 245),
    ],
)
PAGE = """<!doctype html><meta charset="utf-8"><body style="margin:0;background:#1b1d21">
<pre style="margin:0;padding:16px 20px;width:max-content;font:13px/1.25 'DejaVu Sans Mono',monospace;color:#dadde2">{}</pre>"""


SALES = """\
month,product,units,price
2025-01,coffee,120,3.20
2025-01,cake,40,4.00
2025-02,coffee,135,3.20
2025-02,cake,75,4.00
2025-03,coffee,110,3.40
2025-03,cake,130,4.20
"""
CHAT = [
    (
        "Which product in sales.csv brings in more, and how does it change?",
        """\
I look at the months.
```python
import pandas as pd

sales = pd.read_csv("sales.csv")
sales["revenue"] = sales["units"] * sales["price"]
months = sales.pivot_table(index="month", columns="product", values="revenue")
print(months)
```""",
        "Coffee brings in more until February. In March **cake** overtakes it: 546 against 374.",
    ),
    (
        "Draw that.",
        """\
```python
months.plot(title="Revenue", marker="o", figsize=(6, 3));
```""",
        "The lines cross between February and March.",
    ),
]
"""What a user types in the chat, and the answers of the model."""


RUNS = {
    "primes": (
        ["--act"],
        "How many primes are below 1000?",
        "```python\nfinal_answer(sum(all(n % d for d in range(2, n)) for n in range(2, 1000)))\n```",
    ),
    "sine": (
        [],
        "Plot a sine wave and save it as sine.png",
        "```python\nimport matplotlib.pyplot as plt\nplt.plot(range(9))\nplt.savefig('sine.png')\n```",
        "It is drawn.",
    ),
    "prices": (
        [],
        "What do the prices in shop.csv add up to?",
        "```python\nprint(open('shop.csv').read())\n```",
        "There is no file shop.csv.",
    ),
    "words": (
        ["--act"],
        "Which words of this sentence are the longest?",
        "```python\ntext = 'Which words of this sentence are the longest?'\nlongest = max(map(len, text.split()))\n```",
        "```python\nfinal_answer([word for word in text.split() if len(word) == longest])\n```",
    ),
}
"""Options, task and answers of the model of the runs in the list."""


class Terminal:
    """A terminal in which a command runs, in a tmux server of its own.

    Args:
        command: The command and its arguments.
        folder: Its folder.
        rows: Lines of the terminal.
    """

    def __init__(self, *command: object, folder: Path, rows: int = 40) -> None:
        self._socket = str(folder / "tmux")
        line = shlex.join(map(str, command))
        size = ["-x", str(COLUMNS), "-y", str(rows)]
        settings = ["set-option", "-g", "history-limit", "5000", ";", "set-option", "-g", "remain-on-exit", "on", ";"]
        settings += [
            "set-option",
            "-g",
            "remain-on-exit-format",
            "",
            ";",
            "set-option",
            "-g",
            "default-terminal",
            "tmux-256color",
            ";",
        ]
        self._tmux(*settings, "new-session", "-d", *size, "-c", str(folder), line)

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, "-f", os.devnull, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout

    def type(self, text: str) -> None:
        """Type a line, and Enter."""
        self._tmux("send-keys", "-l", text)
        self._tmux("send-keys", "Enter")

    def wait(self, pattern: str) -> None:
        """Wait until the terminal shows a text."""
        wait_until(lambda: re.search(pattern, self._tmux("capture-pane", "-p", "-S", "-").rstrip()), pattern)

    def text(self, *, history: bool) -> str:
        """Return what it shows, with colours."""
        lines = self._tmux("capture-pane", "-e", "-p", *(["-S", "-"] if history else [])).rstrip().splitlines()
        return "\n".join(lines) + "\n"

    def close(self) -> None:
        """End the command and the terminal."""
        with suppress(subprocess.CalledProcessError):
            self._tmux("kill-server")


@contextmanager
def terminal(*command: object, folder: Path, rows: int = 40) -> Iterator[Terminal]:
    """Run a command in a terminal, which ends with the block."""
    opened = Terminal(*command, folder=folder, rows=rows)
    try:
        yield opened
    finally:
        opened.close()


def wait_until(is_so: Callable[[], object], what: str) -> None:
    """Wait for a condition.

    Raises:
        SystemExit: It did not come true in time.
    """
    end = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"waited {WAIT_S:.0f} s for: {what}")
        time.sleep(0.1)


class Screenshots:
    """Makes screenshots with a browser.

    Args:
        browser: Chromium.
        folder: Where they are saved.
    """

    def __init__(self, browser: Browser, folder: Path) -> None:
        self._browser = browser
        self._folder = folder

    def of_terminal(self, name: str, text: str) -> None:
        """Save what a terminal shows.

        Args:
            name: Name of the screenshot.
            text: Text with escape sequences of colours.
        """
        console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
        console.print(Text.from_ansi(text.rstrip("\n")), soft_wrap=True)
        code = console.export_html(theme=THEME, inline_styles=True, code_format="{code}")
        page = self._browser.new_page(viewport={"width": 1000, "height": 400}, device_scale_factor=1.25)
        page.set_content(PAGE.format(code))
        self._save(name, page.locator("pre").screenshot())
        page.close()

    def of_page(self, name: str, address: str, *, size: tuple[int, int], ready: str, keys: str = "") -> None:
        """Save a page of the viewer.

        Args:
            name: Name of the screenshot.
            address: Where it is.
            size: Width and height of the window.
            ready: CSS selector of something that is there when the page is complete.
            keys: Keys to press first.
        """
        page = self._browser.new_page(viewport={"width": size[0], "height": size[1]}, device_scale_factor=1.25)
        page.goto(address)
        page.locator(ready).first.wait_for(timeout=WAIT_S * 1000)
        for key in keys:
            page.keyboard.press(key)
        page.wait_for_function("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
        page.mouse.move(0, 0)
        self._save(name, page.screenshot(animations="disabled"))
        page.close()

    def _save(self, name: str, png: bytes) -> None:
        screenshot = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        file = self._folder / f"{name}.png"
        screenshot.save(file, optimize=True)
        size = file.stat().st_size
        if size > MAX_BYTES:
            raise SystemExit(
                f"{file} has {size:,} bytes; at most {MAX_BYTES:,} are allowed: make the screenshot smaller"
            )
        sys.stdout.write(f"{file.name}: {size / 1000:.0f} kB\n")


def screenshot_demo(screenshots: Screenshots, folder: Path) -> None:
    """The demo in a terminal."""
    with terminal(CODEACT, "demo", folder=folder) as shown:
        shown.wait(r"Next +codeact run")
        text = shown.text(history=True)
    screenshots.of_terminal("demo", text)


def screenshot_run(screenshots: Screenshots, folder: Path) -> None:
    """The page at the end of the demo."""
    subprocess.run([CODEACT, "demo", "--out", folder], check=True, stdout=subprocess.DEVNULL, timeout=WAIT_S)
    address = (folder / "demo.html").as_uri()
    screenshots.of_page("run-page", f"{address}#step-6", size=(1100, 1180), ready="#step-6")


def screenshot_chat(screenshots: Screenshots, folder: Path) -> None:
    """A chat of two turns in a terminal."""
    work_dir = folder / "work"
    work_dir.mkdir()
    (work_dir / "sales.csv").write_text(SALES)
    answers = [answer for _, *answers in CHAT for answer in answers]
    (folder / "chat.json").write_text(json.dumps(answers))
    command = [CODEACT, "chat", "--model", "replay:chat.json", "--work-dir", "work"]
    with terminal(*command, folder=folder, rows=60) as shown:
        for number, (line, *_) in enumerate(CHAT, 1):
            shown.wait(rf"(?s)(?:\[\d+ blocks?, .*){{{number - 1}}}\n> *\Z")
            shown.type(line)
        shown.wait(rf"(?s)(?:\[\d+ blocks?, .*){{{len(CHAT)}}}\n> *\Z")
        text = shown.text(history=True)
    screenshots.of_terminal("chat", text)


def screenshot_list(screenshots: Screenshots, folder: Path) -> None:
    """The list of runs in the viewer."""
    for name, (options, task, *answers) in RUNS.items():
        (folder / "model.json").write_text(json.dumps(answers))
        command = [CODEACT, "run", *options, task, "--model", "replay:model.json", "--save", f"runs/{name}"]
        subprocess.run(command, check=False, cwd=folder, capture_output=True, timeout=WAIT_S)
    with viewed("runs", folder=folder) as address:
        screenshots.of_page("runs-list", address, size=(1100, 480), ready=f"text={RUNS['words'][1]}")


def screenshot_batch(screenshots: Screenshots, folder: Path) -> None:
    """The page of a batch in the viewer."""
    model = f"replay:{SAMPLES / 'batch_answers.json'}"
    command = [CODEACT, "batch", SAMPLES / "batch_tasks.jsonl", "--out", "primes", "--act", "--model", model]
    subprocess.run(command, check=True, cwd=folder, capture_output=True, timeout=WAIT_S)
    with viewed("primes", folder=folder) as address:
        screenshots.of_page("batch", address, size=(1100, 640), ready=".task-row")


@contextmanager
def viewed(*arguments: str, folder: Path) -> Iterator[str]:
    """Serve the viewer for the time of the block, which gets its address."""
    command = [CODEACT, "view", *arguments, "--no-open"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = re.search(r"http://\S+", server.stdout.readline())
        try:
            assert address is not None
            yield address[0]
        finally:
            server.terminate()


def main(names: list[str]) -> None:
    """Make the screenshots whose names begin with one of some words, or all."""
    if missing := [name for name in ("tmux", "chromium") if shutil.which(name) is None]:
        raise SystemExit(
            f"The screenshots need {' and '.join(missing)} (on Debian: apt-get install {' '.join(missing)})."
        )
    makers = {
        name.removeprefix("screenshot_"): make for name, make in globals().items() if name.startswith("screenshot_")
    }
    chosen = [name for name in makers if not names or name.startswith(tuple(names))]
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        )
        for name in chosen:
            with tempfile.TemporaryDirectory(prefix="codeact-screenshots-") as folder:
                os.environ["XDG_STATE_HOME"] = str(Path(folder) / "state")
                makers[name](Screenshots(browser, IMAGES), Path(folder))
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])

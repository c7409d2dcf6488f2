"""The programs in README and docs/ run unchanged, their commands are accepted, and their links have targets."""

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.core
import typer.main

from autogen_codeact.agents.extraction import extract_code_blocks
from autogen_codeact.cli.main import app
from tests import processes
from tests.openai_server import OpenAIServer

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED_PAGES = [
    *PAGES,
    *(ROOT / name for name in ("AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "samples/README.md")),
]
# Import lines only, for a cluster of Ray, or run by tests/frameworks/agent_framework: there is nothing to run here.
FRAGMENTS = {("agent-framework.md", 1), ("differences.md", 1), ("scaling.md", 1), ("runs.md", 2)}
IN_MAKE_TEST = ("README.md", "getting-started.md")
"""Pages whose programs `make test` runs; each of the others takes a second of processor time to import AutoGen."""
MODEL_SAYS = [
    "```python\na, b = 0, 1\nfor _ in range(50):\n    a, b = b, a + b\nprint(a)\n```",
    "The 50th Fibonacci number is 12586269025.",
]
READS_SALES = """```python
import csv

revenue = {row["product"]: int(row["units"]) * float(row["price"]) for row in csv.DictReader(open("sales.csv"))}
best = max(revenue, key=revenue.get)
print(best, revenue[best])
```"""
BEST = (
    "```python\nrevenue = {name: count * price(name) for name, count in units_sold().items()}\n"
    'best = max(revenue, key=revenue.get)\nfinal_answer(f"{best}: {revenue[best]:.2f} euros")\n```'
)
ANSWERS = {
    ("models.md", 1): ["Yes, it is."],
    ("coming-from.md", 1): [READS_SALES, "The teapot brought in the most: 273.00 euros."],
    ("coming-from.md", 2): [BEST],
}
"""What the model answers to a program; `MODEL_SAYS` to all others."""
SALES = "product,units,price\nkettle,3,24.50\nteapot,7,39.00\ncup,20,4.25\n"
PRINTS = {
    ("coming-from.md", 1): "The teapot brought in the most: 273.00 euros.\n",
    ("coming-from.md", 2): "teapot: 273.00 euros\n",
    ("README.md", 1): "cheapest: milk\n",
    ("README.md", 2): "CodeActAgent: 110\n",
    ("models.md", 1): "Yes, it is.\n",
    ("batch.md", 1): "square-4 completed 16 True\n",
    ("viewer.md", 1): "http://127.0.0.1:",
    ("tools.md", 1): "pears 3\nfigs 0\nno such fruit: plums\nstock {'fruit': 'pears'} ok 3\n",
    ("agents.md", 1): '{"item":"milk","euros":1.2}\nitem=\'tea\' euros=4.5\n',
    (
        "network.md",
        1,
    ): "Tunnel connection failed: 403 elsewhere.example:443 is not in allow_domains; to allow it, the user of "
    "this sandbox adds 'elsewhere.example:443' to allow_domains\n\nelsewhere.example False\n",
    ("secrets.md", 1): "{'Authorization': 'Bearer placeholder-\n",
    ("budgets.md", 1): "prompt=0.25 completion=2.0\n",
    ("teams.md", 1): "Add what to buy. Digraph execution is complete\n",
    ("notebooks.md", 1): ("[2, 4]\nthe first is 2\nthe command ended with exit status 3\n['a', 'b']\n"),
    ("data-and-packages.md", 1): "1\nerror\n",
    ("sandbox.md", 1): "total: 5.7\nerror in line 1\n",
    ("sandbox.md", 2): "timeout\n5.7\n",
    ("sandbox.md", 3): "[1, 2, 3]\n",
    ("displays.md", 1): "<Figure size 640x480: figure-1.png>\n\nfigure-1.png ['text/plain', 'image/png']\n",
    ("runs.md", 1): "CodeExecutionEvent\nTextMessage\nTaskResult\ncoder 1 ok\n",
    ("executors.md", 1): "ok 0 None ''\nok 0 42 '42\\n'\n",
    (
        "telemetry.md",
        1,
    ): "create_agent coder\ninvoke_agent coder\nchat gpt-4o\nexecute_tool execute_code\nchat gpt-4o\n",
}


def programs():
    for page in PAGES:
        if page.name == "integrations.md":
            continue  # its programs run in the environments of their frameworks: `make test-integrations`
        blocks = [
            block for block in extract_code_blocks(page.read_text(encoding="utf-8")) if block.language == "python"
        ]
        for number, block in enumerate(blocks, start=1):
            if (page.name, number) not in FRAGMENTS:
                marks = () if page.name in IN_MAKE_TEST else pytest.mark.more
                yield pytest.param(page.name, number, block.code, id=f"{page.name}-{number}", marks=marks)


def commands():
    found = {}
    for page in LINKED_PAGES:
        text = page.read_text(encoding="utf-8")
        fenced = "".join(re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)).splitlines()
        for line in [*fenced, *re.findall(r"`(make [\w-]+)`", text)]:
            words = shlex.split(line, comments=True)
            if words and words[0] in ("codeact", "make"):
                found[" ".join(words)] = page.name, words
    return list(found.values())


def test_every_program_of_the_docs_is_known():
    assert {(param.values[0], param.values[1]) for param in programs()} == PRINTS.keys()


@pytest.mark.usefixtures("docker_engine")
@pytest.mark.parametrize(("page", "number", "code"), list(programs()))
def test_program_of_the_docs_runs(page, number, code, tmp_path):
    server = OpenAIServer(list(ANSWERS.get((page, number), MODEL_SAYS))).start()
    if page == "coming-from.md":
        (tmp_path / "sales.csv").write_text(SALES)
    environment = {**os.environ, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "not-a-key"}
    try:
        done = processes.run(
            ["-c", code],
            # The real endpoint answers with the dated name of a model, which AutoGen's client expects.
            options=("-W", "error", "-W", "ignore:Resolved model mismatch"),
            cwd=tmp_path,
            env=environment,
        )
    finally:
        server.stop()
    assert (done.returncode, done.stderr) == (0, "")
    assert PRINTS[(page, number)] in done.stdout


@pytest.mark.parametrize(("page", "words"), commands())
def test_command_of_the_docs_is_accepted(page: Any, words: Any) -> None:
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        targets = [word for word in words[1:] if "=" not in word]
        assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
        return
    command, arguments = typer.main.get_command(app), words[1:]
    while isinstance(command, typer.core.TyperGroup):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    # Parses the options and runs nothing; an unknown option is a UsageError.
    command.make_context(words[0], arguments)


def test_every_link_between_pages_has_its_target():
    for page in LINKED_PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8")):
            if "://" in target:
                continue
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(linked), f"{page.name} links to {target}#{anchor}"


def test_images_of_the_docs_are_shown_small_and_have_a_text():
    shown = {
        (page.parent / target).resolve(): words
        for page in LINKED_PAGES
        for words, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    }
    images = set((ROOT / "docs" / "images").iterdir())
    assert images <= shown.keys()
    assert [path.name for path in images if len(shown[path]) < 20 or path.stat().st_size > 200_000] == []


def test_every_file_that_a_page_names_exists():
    folders = "agents|batch|benchmarks|cli|docker|docs|executors|runs|samples|sandbox|teams|telemetry"
    folders += "|tests|viewer"
    for page in LINKED_PAGES:
        for path in re.findall(rf"`((?:{folders})/[\w/.*-]+)`", page.read_text(encoding="utf-8")):
            assert list(ROOT.glob(path)), f"{page.name} names {path}"


def anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings have on GitHub."""
    text = re.sub(r"^(`{3,}).*?^\1$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

"""Runs the tests of the adapters for agent frameworks, each in an environment of its own: `make test-integrations`.

- A framework is a folder below this one with a `framework.toml` (title, adapter, packages, what is missing, what isn't ours)
  and tests. Tests that the framework's authors wrote, or that run their programs, are in `test_theirs*.py`; ours in other files.
- Its environment is `.integrations/FOLDER`: `codeact-sandbox` of this checkout (editable), the packages, pytest. It is made
  again if the packages or `sandbox/pyproject.toml` change. `test_environment.py` runs in each one (`pip check`).
- Tests use `conftest.py` (`engine`: "docker", then "bubblewrap") and `shared/scripted.py` (a model server on loopback; programs
  of docs/integrations.md). `async` tests need no mark. A test that can't pass is skipped or an xfail with its reason.
- `python tests/frameworks/run.py [FOLDER…] [-- PYTEST ARGUMENTS]` runs some. Those that passed get their rows in the page.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import xml.etree.ElementTree as ET
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WHERE = ROOT / ".integrations"
PAGE = ROOT / "docs" / "integrations.md"
MARKERS = "<!-- table: make test-integrations -->", "<!-- end of the table -->"
HEAD = (
    "| framework | version | lines of the adapter | their tests passed | our tests | missing | not ours to promise |",
    "|---|---|---|---|---|---|---|",
)
TOOLS = ("pytest==9.1.1", "pytest-timeout==2.4.0", "anyio>=4.12")
INSTALL_TIMEOUT_S = 900
TESTS_TIMEOUT_S = 1800
ENGINE = re.compile(r"\[(docker|bubblewrap)\]|(docker|bubblewrap)-|-(docker|bubblewrap)(?=\])")


class Missing(Exception):
    """A framework can't be installed."""


def main(arguments):
    """Run the tests of some or all frameworks; return 1 if one failed."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    names, options = arguments[:end], arguments[end + 1 :]
    folders = sorted(path.parent for path in HERE.glob("*/framework.toml"))
    chosen = [folder for folder in folders if not names or folder.name in names]
    found, failed = {}, []
    for folder in chosen:
        framework = tomllib.loads((folder / "framework.toml").read_text(encoding="utf-8"))
        try:
            version, cases, status = run_tests(folder, framework, options)
        except Missing as missing:
            print(f"{framework['title']}: {missing}", file=sys.stderr)
            failed += [] if "not_installable" in framework else [folder.name]
            version, cases, framework["missing"] = "-", {}, framework.get("not_installable", str(missing))
        else:
            failed += [folder.name] if status else []
        lines = [row(framework, version, cases), *exceptions(framework, cases)]
        print(*lines, sep="\n")
        if folder.name not in failed:
            found[framework["title"]] = lines
    if not options:
        write(found, [tomllib.loads((folder / "framework.toml").read_text(encoding="utf-8")) for folder in folders])
    if failed:
        print("failed:", *failed, file=sys.stderr)
    return 1 if failed or not chosen else 0


def write(found, frameworks):
    """Write the lines of the frameworks that were run into the page; those of others stay."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKERS[0])
    table, _, after = rest.partition(MARKERS[1])
    rows, notes = [], []
    for title in [framework["title"] for framework in frameworks]:
        earlier = [line for line in table.splitlines() if line.startswith((f"| {title} |", f"- {title}, "))]
        lines = found.get(title, earlier)
        rows += [line for line in lines if line.startswith("|")]
        notes += [line for line in lines if line.startswith("-")]
    lines = "\n".join([*HEAD, *rows, *(["", *notes] if notes else [])])
    PAGE.write_text(f"{before}{MARKERS[0]}\n{lines}\n{MARKERS[1]}{after}", encoding="utf-8")


def run_tests(folder, framework, options):
    """Return the framework's version, what became of each test, and pytest's exit status."""
    python = environment_of(folder.name, framework["packages"])
    shown = re.split(r"[\[=<>]", framework["packages"][0])[0]
    code = f"import importlib.metadata; print(importlib.metadata.version({shown!r}))"
    version = run("the version is unknown", [python, "-c", code]).strip()
    report = WHERE / f"{folder.name}.xml"
    report.unlink(missing_ok=True)
    # Nothing of this machine's own settings, such as keys of models.
    kept = {
        name: value for name, value in os.environ.items() if not re.search("API_KEY|BASE_URL|_TOKEN|^PYTEST_", name)
    }
    # With another root, modules of tests would be named like those of the framework.
    places = ["-c", HERE / "pytest.ini", "--rootdir", ROOT, "--confcutdir", HERE]
    command = [python, "-P", "-m", "pytest", *places, f"--junitxml={report}", *options]
    status = subprocess.run(
        [*command, folder, HERE / "test_environment.py"],
        cwd=HERE,
        env={**kept, "PYTHONPATH": str(HERE / "shared"), "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=TESTS_TIMEOUT_S,
        check=False,
    ).returncode
    return version, cases_of(report), status


def environment_of(name, packages):
    """Return the interpreter of an environment, which is made if it is missing or other packages are wanted."""
    folder = WHERE / name
    python, done = folder / "bin/python", folder / "requirements.json"
    project = ROOT / "sandbox"
    wanted = json.dumps([packages, TOOLS, (project / "pyproject.toml").read_text(encoding="utf-8")])
    if done.exists() and done.read_text(encoding="utf-8") == wanted:
        return python
    print(f"making the environment of {name}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    install = [python, "-m", "pip", "install", "--quiet", "--editable", project, *packages, *TOOLS]
    run("it could not be installed", install)
    done.write_text(wanted, encoding="utf-8")
    return python


def run(problem, command):
    """Return what a program prints."""
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{problem}: {type(error).__name__}") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise Missing(f"{problem}: {lines[-1]}")
    return done.stdout


def cases_of(report):
    """Return for each test, without the name of the engine: whether it is theirs, and why it did not pass; "" if it passed."""
    cases = {}
    if not report.exists():
        return cases
    for case in ET.parse(report).iter("testcase"):
        theirs = "test_theirs" in case.get("classname", "")
        key = theirs, ENGINE.sub("", f"{case.get('classname')}.{case.get('name')}").removesuffix("[]")
        bad = next((case.find(tag) for tag in ("failure", "error", "skipped") if case.find(tag) is not None), None)
        reason = "" if bad is None else f"{bad.get('message') or bad.tag}".partition("\n")[0]
        cases[key] = cases.get(key) or reason
    return cases


def row(framework, version, cases):
    """Return a framework's line of the table."""
    counts = {}
    for theirs in (True, False):
        reasons = [reason for key, reason in cases.items() if key[0] is theirs]
        counts[theirs] = f"{reasons.count('')} of {len(reasons)}" if reasons else "-"
    adapter = ROOT / "sandbox" / "codeact_sandbox" / "integrations" / framework["adapter"]
    lines = len(adapter.read_text(encoding="utf-8").splitlines()) if adapter.is_file() else "-"
    theirs = f"{framework['theirs']} {counts[True]}" if framework.get("theirs") else counts[True]
    cells = [framework["title"], version, lines, theirs, counts[False]]
    return "| " + " | ".join(map(str, [*cells, framework.get("missing", ""), framework.get("not_ours", "")])) + " |"


def exceptions(framework, cases):
    """Return a line for each reason why some of their tests did not pass."""
    reasons = {}
    for (theirs, name), reason in cases.items():
        if theirs and reason:
            reasons.setdefault(reason, []).append(f"`{name.rpartition('.')[2]}`")
    return [f"- {framework['title']}, {', '.join(names)}: {reason}" for reason, names in reasons.items()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

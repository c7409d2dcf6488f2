"""What the modules of backends/ and files/ import: neither AutoGen, nor the Docker SDK before it is needed."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3] / "sandbox"
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("backends", "files")
    for path in sorted((ROOT / "codeact_sandbox" / folder).rglob("*.py"))
    if path.name != "__init__.py"
]
# They use the host's client, which still imports AutoGen.
WITH_CLIENT = {f"codeact_sandbox.files.{name}" for name in ("manifest", "sync", "transfers")}
HEAVY = {"autogen_core", "autogen_agentchat", "autogen_ext", "docker", "requests", "typer", "autogen_codeact.executors"}


def test_importing_backends_and_files_imports_neither_autogen_nor_the_docker_sdk() -> None:
    modules = [module for module in MODULES if module not in WITH_CLIENT]
    assert len(modules) > 20
    code = f"import sys, {', '.join(modules)}\nprint(*sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    assert done.stdout.split() == []

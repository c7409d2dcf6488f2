"""The sandbox library's host tools stand on their own: they import no AutoGen, and work without it."""

import pkgutil
import subprocess
import sys

import pytest

from autogen_codeact.sandbox import tools

LOADED = """
import importlib, sys
importlib.import_module(sys.argv[1])
print(*sorted(name for name in sys.modules if name.startswith(("autogen_core", "autogen_ext", "autogen_agentchat", "PIL"))))
"""
NAMES = [f"{tools.__name__}.{module.name}" for module in pkgutil.iter_modules(tools.__path__)]
# The results of blocks are AutoGen's until they move out of the sandbox library.
WITH_RESULTS = {f"{tools.__name__}.broker"}


@pytest.mark.parametrize("name", sorted({*NAMES} - WITH_RESULTS))
def test_a_module_imports_no_autogen(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", LOADED, name], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.split() == []

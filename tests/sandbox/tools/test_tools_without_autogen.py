"""The sandbox library's host tools import no AutoGen."""

import pkgutil
import subprocess
import sys

from codeact_sandbox import tools

LOADED = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*sorted(name for name in sys.modules if name.startswith(("autogen_core", "autogen_ext", "autogen_agentchat", "docker"))))
"""
# It needs the results of blocks, which are AutoGen's until they move out of the sandbox library.
WITH_RESULTS = "broker"


def test_no_module_imports_autogen() -> None:
    names = [module.name for module in pkgutil.iter_modules(tools.__path__) if module.name != WITH_RESULTS]
    command = [sys.executable, "-c", LOADED, *(f"{tools.__name__}.{name}" for name in names)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.split() == []

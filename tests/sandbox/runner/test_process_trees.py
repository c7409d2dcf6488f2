"""Killing process trees, on real processes in a PID namespace of their own."""

import subprocess
import sys
from pathlib import Path

import codeact_sandbox
from tests.sandbox.runner.local_runner import NAMESPACES
from tests.sandbox.runner.test_runner_old_python import needs_namespaces

RUNNER = Path(codeact_sandbox.__file__).parent
# Pauses between the list of processes and the reading of each, as on a busy machine.
KILL = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from runner.shared import system
listed = system.list_pids
def list_slowly():
    found = listed()
    time.sleep(0.01)
    return found
for _ in range(5):
    system.list_pids = list_slowly
    if os.fork() == 0:
        while True:
            if os.fork(): os._exit(0)
    system.kill_trees(lambda parent_of: [pid for pid, parent in parent_of.items() if parent == 1])
    system.list_pids = listed
    system.send_signal(-1, signal.SIGSTOP)
    print(sorted(system.parents()), flush=True)
"""


@needs_namespaces
def test_process_that_forks_while_the_list_is_read_is_killed():
    command = [*NAMESPACES, sys.executable, "-c", KILL, str(RUNNER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("[1]\n" * 5, "", 0)

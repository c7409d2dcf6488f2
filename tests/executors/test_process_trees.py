"""Killing process trees, on real processes in a PID namespace of their own."""

import subprocess
import sys
from pathlib import Path

import autogen_codeact.sandbox

from .local_runner import NAMESPACES
from .test_runner_old_python import needs_namespaces

RUNNER = Path(autogen_codeact.sandbox.__file__).parent
# Takes its time between the list of processes and the look at each, as on a machine that is busy with others.
KILL = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from runner import system
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
def test_one_that_forks_on_between_the_list_and_the_look_is_found():
    command = [*NAMESPACES, sys.executable, "-c", KILL, str(RUNNER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("[1]\n" * 5, "", 0)

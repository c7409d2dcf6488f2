"""Runs in the environment of each framework."""

import subprocess
import sys


def test_the_framework_and_the_sandbox_are_installed_without_a_conflict():
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "No broken requirements found.\n"), done.stderr

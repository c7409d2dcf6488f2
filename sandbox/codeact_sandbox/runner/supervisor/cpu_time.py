"""Processor time that a block has used."""

import os
import time

from ..shared import system

CGROUP_COUNTERS = (
    ("/sys/fs/cgroup/cpu.stat", "usage_usec", 1e-6),  # cgroup v2
    ("/sys/fs/cgroup/cpuacct/cpuacct.usage", None, 1e-9),  # cgroup v1
    ("/sys/fs/cgroup/cpu/cpuacct.usage", None, 1e-9),
)
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


class CpuTimeMeter:
    """Processor time since its creation.

    The control group's counter is complete, but counts everything in the sandbox. So if other blocks run at the same time, or
    there is no control group, the block's living processes are added up, each with the children that it has waited for.
    """

    def __init__(self, find_roots):
        self._find_roots = find_roots
        self._cgroup_start = cgroup_seconds()
        self._supervisor_start = time.process_time()
        self._trees_start = tree_seconds(find_roots)

    def seconds(self, alone):
        cgroup = cgroup_seconds() if alone else None
        if cgroup is None or self._cgroup_start is None:
            return tree_seconds(self._find_roots) - self._trees_start
        return cgroup - self._cgroup_start - (time.process_time() - self._supervisor_start)


def cgroup_seconds(counters=CGROUP_COUNTERS):
    """Return the processor time of the whole sandbox; None if it can't be read."""
    for path, key, unit in counters:
        try:
            with open(path) as file:
                words = file.read().split()
            return int(words[words.index(key) + 1 if key else 0]) * unit
        except (OSError, ValueError, IndexError):
            continue
    return None


def tree_seconds(find_roots):
    """Return the processor time of processes and all their descendants, zombies included."""
    parent_of, seconds = {}, {}
    for pid in system.list_pids():
        fields = system.stat_fields(pid)
        if fields:
            parent_of[pid] = int(fields[1])
            seconds[pid] = sum(map(int, fields[11:15])) * TICK_S
    return sum(seconds[pid] for pid in system.descendants(parent_of, find_roots))

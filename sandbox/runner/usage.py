"""Processor time that a block has used."""

import os
import time

from . import system

CPU_COUNTERS = (
    ("/sys/fs/cgroup/cpu.stat", "usage_usec", 1e-6),  # cgroup v2
    ("/sys/fs/cgroup/cpuacct/cpuacct.usage", None, 1e-9),  # cgroup v1
    ("/sys/fs/cgroup/cpu/cpuacct.usage", None, 1e-9),
)
TICK = 1.0 / os.sysconf("SC_CLK_TCK")


class Meter:
    """What a block has used since it began.

    The control group's count misses nothing, but holds all that runs in the sandbox. So where other blocks run at the same
    time, or there is no control group, the block's living processes are added up, each with the children that it waited for.

    Args:
        find_roots: Given the map of parents, names the processes where the block's trees begin.
    """

    def __init__(self, find_roots):
        self._find_roots = find_roots
        self._group = group_seconds()
        self._supervisor = time.process_time()
        self._tree = tree_seconds(find_roots)

    def used(self, alone):
        """Seconds of processor time; `alone` says whether no other block has run meanwhile."""
        group = group_seconds() if alone else None
        if group is None or self._group is None:
            return tree_seconds(self._find_roots) - self._tree
        return group - self._group - (time.process_time() - self._supervisor)


def group_seconds(counters=CPU_COUNTERS):
    """Processor time of the whole sandbox; None where it can't be read."""
    for path, key, unit in counters:
        try:
            with open(path) as file:
                words = file.read().split()
            return int(words[words.index(key) + 1 if key else 0]) * unit
        except (OSError, ValueError, IndexError):
            continue
    return None


def tree_seconds(find_roots):
    """Processor time of processes with all that descend from them, zombies included."""
    parent_of, seconds = {}, {}
    for pid in system.list_pids():
        fields = system.stat_fields(pid)
        if fields:
            parent_of[pid] = int(fields[1])
            seconds[pid] = sum(map(int, fields[11:15])) * TICK
    children = {}
    for pid, parent in parent_of.items():
        children.setdefault(parent, []).append(pid)
    todo = [pid for pid in find_roots(parent_of) if pid in parent_of]
    total = 0.0
    while todo:
        pid = todo.pop()
        total += seconds[pid]
        todo.extend(children.get(pid, ()))
    return total

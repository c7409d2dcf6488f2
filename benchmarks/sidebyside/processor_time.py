"""Processor time of everything that a variant uses: the machine as a whole, its containers, the client; standard library only."""

import os
import resource
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
# Version 1 and version 2 of control groups, with the unit of the figure in seconds.
MACHINE = [CGROUPS / "cpuacct/cpuacct.usage", CGROUPS / "cpu.stat"]
CONTAINERS = [
    CGROUPS / "cpuacct/docker/cpuacct.usage",
    CGROUPS / "docker/cpu.stat",
    CGROUPS / "system.slice/docker.slice/cpu.stat",
]

DAEMONS = ("dockerd", "containerd")


def read():
    """Return the seconds of processor time used until now.

    Returns:
        "machine": all processes. "containers": all processes in containers of Docker, also those that have ended; None if
        this machine does not count them. "client": this process and its children. "engine": the engine's lasting processes,
        without the shim and runc of each container.
    """
    machine = _first(MACHINE)
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "machine": machine if machine is not None else _proc_stat(),
        "containers": _first(CONTAINERS),
        "client": sum(usage.ru_utime + usage.ru_stime for usage in own),
        "engine": sum(map(_used, _daemons())),
    }


def since(before):
    """Return the seconds of processor time used since an earlier `read`."""
    now = read()
    return {
        name: None if value is None or before[name] is None else value - before[name] for name, value in now.items()
    }


def _daemons():
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "comm").read_text().strip() in DAEMONS:
                found.append(folder)
        except OSError:  # it has ended
            continue
    return found


def _used(folder):
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _first(paths):
    for path in paths:
        try:
            text = path.read_text()
        except OSError:
            continue
        if path.name == "cpu.stat":
            return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("usage_usec")) / 1e6
        return int(text) / 1e9
    return None


def _proc_stat():
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    # user, nice, system, idle, iowait, irq, softirq: without the two that mean waiting, and without a hypervisor's share.
    return sum(int(fields[number]) for number in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")

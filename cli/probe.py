"""A program for the sandbox that prints which limits hold there, as one line of JSON."""

PROBE = """\
import ctypes, json, os, platform, resource, socket

def text(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""

def number(*paths):
    for path in paths:
        if text(path).strip().isdigit():
            return int(text(path))

def writable(path):
    try:
        with open(path, "w"):
            return True
    except OSError:
        return False

def connects():
    # An address for documentation. To connect a UDP socket sends nothing, and fails without a route.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        try:
            udp.connect(("192.0.2.1", 53))
        except OSError:
            return False
        return True

def signals_reach_others():
    try:
        os.kill(1, 0)
    except OSError:
        return False
    return True

status = dict(line.split(":", 1) for line in text("/proc/self/status").splitlines() if ":" in line)
group = "/sys/fs/cgroup/"
print(json.dumps({
    "python": platform.python_version(),
    "interfaces": sorted(name for _, name in socket.if_nameindex()),
    "connects": connects(),
    "capabilities": int(status["CapEff"], 16) | int(status["CapPrm"], 16),
    "bounding": int(status["CapBnd"], 16),
    "no_new_privs": int(status["NoNewPrivs"]) == 1,
    "seccomp": int(status["Seccomp"]),
    "uid": os.getuid(),
    "gid": os.getgid(),
    "root_writable": writable("/codeact-probe") or writable("/usr/codeact-probe"),
    "memory": number(group + "memory.max", group + "memory/memory.limit_in_bytes"),
    "pids": number(group + "pids.max", group + "pids/pids.max"),
    "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
    "nproc": resource.getrlimit(resource.RLIMIT_NPROC)[1],
    "address_space": resource.getrlimit(resource.RLIMIT_AS)[1],
    # landlock_create_ruleset with the flag that requests the version only.
    "landlock": ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1),
    "signals_reach_others": signals_reach_others(),
}))
"""

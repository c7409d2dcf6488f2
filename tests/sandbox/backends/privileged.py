"""What asks for more rights than code may have: each call says what came of it, so that a refusal can stand beside success."""

SOURCE = """
import ctypes, errno, json, os
libc = ctypes.CDLL(None, use_errno=True)
os.makedirs("/tmp/more", exist_ok=True)
CALLS = {
    "mount": lambda: libc.mount(b"none", b"/tmp/more", b"tmpfs", 0, None),
    "unshare a user namespace": lambda: libc.unshare(0x10000000),
    "setns": lambda: libc.setns(os.open("/proc/self/ns/net", os.O_RDONLY), 0),
    "chroot": lambda: libc.chroot(b"/tmp/more"),
    "mknod": lambda: os.mknod("/tmp/more/sda", 0o60600, os.makedev(8, 0)),
    "ptrace its parent": lambda: libc.ptrace(0x4206, os.getppid(), None, None),
    "ptrace process 1": lambda: libc.ptrace(0x4206, 1, None, None),
    "setuid": lambda: libc.setuid(0),
    "sethostname": lambda: libc.sethostname(b"x", 1),
}
def attempt(call):
    try:
        return ctypes.get_errno() if call() == -1 else 0
    except OSError as error:
        return error.errno
def outcome(call):
    child = os.fork()
    if child == 0:
        os._exit(attempt(call))
    return errno.errorcode.get(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), "ok")
print(json.dumps({name: outcome(call) for name, call in CALLS.items()}))
"""
REFUSALS = {"EPERM", "ENOSYS", "EINVAL"}
# A namespace's root is none of the machine's, which alone may make devices; and its first process is not its own to trace.
NOT_IN_BUBBLEWRAP = {"mknod"}

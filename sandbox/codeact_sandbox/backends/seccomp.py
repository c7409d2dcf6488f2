"""The system calls that a sandbox may make: one allow-list, as a profile for Docker and as a filter program for the kernel.

The list is `docker/seccomp.json`, in Docker's format. docs/security.md explains what it leaves out.
"""

from __future__ import annotations

import functools
import itertools
import json
import platform
import struct
from pathlib import Path
from typing import Any, NamedTuple

from codeact_sandbox.types.errors import SandboxStartError, SandboxUnavailable

PROFILE = Path(__file__).parents[1] / "docker" / "seccomp.json"

# linux/audit.h: what `arch` is in struct seccomp_data.
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000  # set in the number of every call of the x32 ABI, which shares x86_64's AUDIT_ARCH
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16  # struct seccomp_data
_ENOSYS = 38
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000  # linux/seccomp.h
_LOAD, _AND, _GO, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x54, 0x05, 0x15, 0x35, 0x06  # linux/bpf_common.h
_LOW_32_BITS = 0xFFFFFFFF


# Names of system calls in the order of their numbers, up to Linux 7.0, with those that were removed or never implemented.
_X86_64 = """
    read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask
    rt_sigreturn ioctl pread64 pwrite64 readv writev access pipe select sched_yield mremap msync mincore madvise
    shmget shmat shmctl dup dup2 pause nanosleep getitimer alarm setitimer getpid sendfile socket connect accept
    sendto recvfrom sendmsg recvmsg shutdown bind listen getsockname getpeername socketpair setsockopt getsockopt
    clone fork vfork execve exit wait4 kill uname semget semop semctl shmdt msgget msgsnd msgrcv msgctl fcntl flock
    fsync fdatasync truncate ftruncate getdents getcwd chdir fchdir rename mkdir rmdir creat link unlink symlink
    readlink chmod fchmod chown fchown lchown umask gettimeofday getrlimit getrusage sysinfo times ptrace getuid
    syslog getgid setuid setgid geteuid getegid setpgid getppid getpgrp setsid setreuid setregid getgroups setgroups
    setresuid getresuid setresgid getresgid getpgid setfsuid setfsgid getsid capget capset rt_sigpending
    rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend sigaltstack utime mknod uselib personality ustat statfs fstatfs
    sysfs getpriority setpriority sched_setparam sched_getparam sched_setscheduler sched_getscheduler
    sched_get_priority_max sched_get_priority_min sched_rr_get_interval mlock munlock mlockall munlockall vhangup
    modify_ldt pivot_root _sysctl prctl arch_prctl adjtimex setrlimit chroot sync acct settimeofday mount umount2
    swapon swapoff reboot sethostname setdomainname iopl ioperm create_module init_module delete_module
    get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg afs_syscall tuxcall security gettid readahead
    setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr
    lremovexattr fremovexattr tkill time futex sched_setaffinity sched_getaffinity set_thread_area io_setup
    io_destroy io_getevents io_submit io_cancel get_thread_area lookup_dcookie epoll_create epoll_ctl_old
    epoll_wait_old remap_file_pages getdents64 set_tid_address restart_syscall semtimedop fadvise64 timer_create
    timer_settime timer_gettime timer_getoverrun timer_delete clock_settime clock_gettime clock_getres
    clock_nanosleep exit_group epoll_wait epoll_ctl tgkill utimes vserver mbind set_mempolicy get_mempolicy mq_open
    mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr kexec_load waitid add_key request_key keyctl
    ioprio_set ioprio_get inotify_init inotify_add_watch inotify_rm_watch migrate_pages openat mkdirat mknodat
    fchownat futimesat newfstatat unlinkat renameat linkat symlinkat readlinkat fchmodat faccessat pselect6 ppoll
    unshare set_robust_list get_robust_list splice tee sync_file_range vmsplice move_pages utimensat epoll_pwait
    signalfd timerfd_create eventfd fallocate timerfd_settime timerfd_gettime accept4 signalfd4 eventfd2
    epoll_create1 dup3 pipe2 inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init
    fanotify_mark prlimit64 name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg setns getcpu
    process_vm_readv process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp getrandom
    memfd_create kexec_file_load bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2
    pkey_mprotect pkey_alloc pkey_free statx io_pgetevents rseq uretprobe uprobe
"""

_AARCH64 = """
    io_setup io_destroy io_submit io_cancel io_getevents setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr
    listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr getcwd lookup_dcookie eventfd2
    epoll_create1 epoll_ctl epoll_pwait dup dup3 fcntl inotify_init1 inotify_add_watch inotify_rm_watch ioctl
    ioprio_set ioprio_get flock mknodat mkdirat unlinkat symlinkat linkat renameat umount2 mount pivot_root
    nfsservctl statfs fstatfs truncate ftruncate fallocate faccessat chdir fchdir chroot fchmod fchmodat fchownat
    fchown openat close vhangup pipe2 quotactl getdents64 lseek read write readv writev pread64 pwrite64 preadv
    pwritev sendfile pselect6 ppoll signalfd4 vmsplice splice tee readlinkat newfstatat fstat sync fsync fdatasync
    sync_file_range timerfd_create timerfd_settime timerfd_gettime utimensat acct capget capset personality exit
    exit_group waitid set_tid_address unshare futex set_robust_list get_robust_list nanosleep getitimer setitimer
    kexec_load init_module delete_module timer_create timer_gettime timer_getoverrun timer_settime timer_delete
    clock_settime clock_gettime clock_getres clock_nanosleep syslog ptrace sched_setparam sched_setscheduler
    sched_getscheduler sched_getparam sched_setaffinity sched_getaffinity sched_yield sched_get_priority_max
    sched_get_priority_min sched_rr_get_interval restart_syscall kill tkill tgkill sigaltstack rt_sigsuspend
    rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigreturn setpriority getpriority
    reboot setregid setgid setreuid setuid setresuid getresuid setresgid getresgid setfsuid setfsgid times setpgid
    getpgid getsid setsid getgroups setgroups uname sethostname setdomainname getrlimit setrlimit getrusage umask
    prctl getcpu gettimeofday settimeofday adjtimex getpid getppid getuid geteuid getgid getegid gettid sysinfo
    mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr msgget msgctl msgrcv msgsnd semget semctl
    semtimedop semop shmget shmctl shmat shmdt socket socketpair bind listen accept connect getsockname getpeername
    sendto recvfrom setsockopt getsockopt shutdown sendmsg recvmsg readahead brk munmap mremap add_key request_key
    keyctl clone execve mmap fadvise64 swapon swapoff mprotect msync mlock munlock mlockall munlockall mincore
    madvise remap_file_pages mbind get_mempolicy set_mempolicy migrate_pages move_pages rt_tgsigqueueinfo
    perf_event_open accept4 recvmmsg
"""

_AARCH64_FROM_260 = """
    wait4 prlimit64 fanotify_init fanotify_mark name_to_handle_at open_by_handle_at clock_adjtime syncfs setns
    sendmmsg process_vm_readv process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp
    getrandom memfd_create bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect
    pkey_alloc pkey_free statx io_pgetevents rseq kexec_file_load
"""

# From here on both have the same numbers.
_BOTH_FROM_424 = """
    pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig fsmount
    fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2 process_madvise epoll_pwait2 mount_setattr
    quotactl_fd landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_secret process_mrelease
    futex_waitv set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue
    statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat listxattrat
    removexattrat open_tree_attr file_getattr file_setattr listns rseq_slice_yield
"""


def _numbered(*runs: tuple[int, str]) -> dict[str, int]:
    return {name: number for start, names in runs for number, name in enumerate(names.split(), start)}


SYSCALLS = {
    "x86_64": _numbered((0, _X86_64), (424, _BOTH_FROM_424)),
    "aarch64": _numbered((0, _AARCH64), (260, _AARCH64_FROM_260), (424, _BOTH_FROM_424)),
}
"""Architecture, as `platform.machine()` names it, to the number of each call by name."""


def profile_path(choice: str) -> Path:
    """Return the file of a profile that is not the engine's own."""
    return PROFILE if choice == "default" else Path(choice).resolve()


def docker_profile(choice: str = "default") -> str | None:
    """Return the seccomp profile for a container as JSON text, because the engine may be on another machine.

    `choice` is "default", "engine" for the engine's own (which gives None), or the path of a file in Docker's format.
    """
    if choice == "engine":
        return None
    path = profile_path(choice)
    try:
        text = path.read_text(encoding="utf-8")
        profile = json.loads(text)
    except (OSError, ValueError) as error:
        raise SandboxStartError(
            f'the seccomp profile {path} can\'t be used ({error}): pass seccomp="default", "engine" or the path of a JSON file'
        ) from error
    # The engine accepts other values here, such as `unconfined`, so only an object with a default passes.
    if not isinstance(profile, dict) or "defaultAction" not in profile:
        raise SandboxStartError(f'{path} is not a seccomp profile: it has no "defaultAction"')
    return text


@functools.cache
def bpf_program(arch: str | None = None) -> bytes:
    """Return the same allow-list as a filter program, for `bwrap --seccomp` or seccomp(2)."""
    arch = arch if arch is not None else platform.machine()
    if arch not in SYSCALLS:
        raise SandboxUnavailable(f"there is no system call filter for {arch}, only for {' and '.join(SYSCALLS)}")
    profile = json.loads(PROFILE.read_text(encoding="utf-8"))
    program = [
        _Instruction(_LOAD, k=_ARCH_AT),
        _Instruction(_IF_EQUAL, 1, 0, _AUDIT_ARCH[arch]),
        _Instruction(_RETURN, k=_KILL_PROCESS),
        _Instruction(_LOAD, k=_NUMBER_AT),
    ]
    if arch == "x86_64":
        program += [_Instruction(_IF_AT_LEAST, 0, 1, _X32), _Instruction(_RETURN, k=_KILL_PROCESS)]
    program += _search(_ranges(profile, SYSCALLS[arch]))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


class _Instruction(NamedTuple):
    code: int
    if_true: int = 0
    if_false: int = 0
    k: int = 0


_Block = list[_Instruction]


def _ranges(profile: dict[str, Any], numbers: dict[str, int]) -> list[tuple[int, _Block]]:
    """Return blocks of instructions, each with the first number of the system calls that it decides on."""
    default = _action(profile["defaultAction"], profile["defaultErrnoRet"])
    rules: dict[str, list[_Block]] = {}
    for entry in profile["syscalls"]:
        verdict = _action(entry["action"], entry.get("errnoRet", 1))
        for name in entry["names"]:
            rules.setdefault(name, []).append(_rule(entry.get("args", []), verdict))
    blocks = {number: _until_return([*rules.get(name, []), [default]]) for name, number in numbers.items()}
    end = max(blocks) + 1
    each = [(number, blocks.get(number, [default])) for number in range(end)]
    # Newer than this list: libc falls back to older calls on ENOSYS, and on nothing else.
    each.append((end, [_action("SCMP_ACT_ERRNO", _ENOSYS)]))
    return [next(group) for _, group in itertools.groupby(each, key=lambda item: item[1])]


def _action(name: str, errno: int) -> _Instruction:
    return _Instruction(_RETURN, k={"SCMP_ACT_ALLOW": _ALLOW, "SCMP_ACT_ERRNO": _ERRNO | errno}[name])


def _until_return(rules: list[_Block]) -> _Block:
    """Join rules, up to the first that always applies."""
    block: _Block = []
    for rule in rules:
        block += rule
        if len(rule) == 1:
            break
    return block


def _rule(conditions: list[dict[str, Any]], verdict: _Instruction) -> _Block:
    """Return instructions that return the verdict if all conditions hold, else continue after it."""
    block = [verdict]
    for condition in reversed(conditions):
        if condition["op"] != "SCMP_CMP_MASKED_EQ":
            raise ValueError(f"{PROFILE.name} has a comparison that is not supported: {condition['op']}")
        at = _ARGUMENTS_AT + 8 * condition["index"]
        mask, expected = condition["value"], condition["valueTwo"]
        # Little-endian: the low half of the argument comes first.
        for offset, shift in ((0, 0), (4, 32)):
            if mask >> shift & _LOW_32_BITS:
                block = (
                    _compare(at + offset, mask >> shift & _LOW_32_BITS, expected >> shift & _LOW_32_BITS, len(block))
                    + block
                )
    return block


def _compare(offset: int, mask: int, expected: int, rest: int) -> _Block:
    masking = [_Instruction(_AND, k=mask)] if mask != _LOW_32_BITS else []
    return [_Instruction(_LOAD, k=offset), *masking, _Instruction(_IF_EQUAL, 0, rest, expected)]


def _search(ranges: list[tuple[int, _Block]]) -> _Block:
    """Return instructions that find the block of a number by binary search."""
    if len(ranges) == 1:
        return ranges[0][1]
    half = len(ranges) // 2
    lower, upper = _search(ranges[:half]), _search(ranges[half:])
    # Conditional jumps reach 255 instructions, this one any distance.
    return [_Instruction(_IF_AT_LEAST, 0, 1, ranges[half][0]), _Instruction(_GO, k=len(lower)), *lower, *upper]

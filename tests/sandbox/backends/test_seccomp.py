"""The sandbox's list of system calls: each refusal beside its control, the same call without the filter.

A refusal that looks the same without the filter proves nothing; the test prints its name.
"""

import pytest

from codeact_sandbox import AsyncSandbox
from codeact_sandbox.backends.seccomp import SYSCALLS
from tests.sandbox.backends.filtered import MACHINE, NUMBERS, UNLISTED, outcomes, place, run
from tests.sandbox.backends.syscall_probe import ALLOWED, FOREIGN, MODES, REFUSED

__all__ = ["place"]  # a fixture
pytestmark = pytest.mark.skipif(MACHINE not in SYSCALLS, reason=f"there is no list for {MACHINE}")
BY_ARGUMENT = [name for name in REFUSED if name not in UNLISTED and name.split()[0] in NUMBERS]
BESIDE = [name for name in ALLOWED if name.split()[0] in NUMBERS or name.split()[0] not in MODES]
# libseccomp, which makes the filter for Docker, may not know the newest calls; runc answers those with ENOSYS.
NEW = 450


@pytest.mark.usefixtures("docker_engine")
async def test_engine_means_the_engines_own_profile():
    traced = "import ctypes\nprint(ctypes.CDLL(None).ptrace(0, 0, 0, 0))"
    for options, said in (({"seccomp": "engine"}, "0\n"), ({}, "-1\n")):
        async with AsyncSandbox("docker", mode="process", **options) as box:
            assert (await box.run(traced)).output == said


def check_refused(place, cases, expected):
    """Check each case; `expected` gives what it may end with. Some are not proven on each kernel, but never all."""
    seen, control = outcomes(place, filtered=True), outcomes(place, filtered=False)
    assert {case: seen[case] for case in cases if seen[case] not in expected(case)} == {}
    unproven = [case for case in cases if seen[case] == control[case]]
    print(f"not proven in {place}, because they end so without the filter, too: {unproven}")
    assert len(unproven) < len(cases)


# Cases 24, 25, 31.
def test_calls_that_are_not_on_the_list_are_refused(place):
    def expected(case):
        return {"EPERM", "ENOSYS"} if place == "docker" and NUMBERS[case] > NEW else {"EPERM"}

    check_refused(place, UNLISTED, expected)


# Cases 24, 30.
def test_calls_are_refused_by_their_arguments(place):
    check_refused(place, BY_ARGUMENT, lambda _: {"EPERM"})


# Case 30.
@pytest.mark.skipif(MACHINE != "x86_64", reason="only x86-64 has further ways into the kernel")
def test_other_entries_to_the_kernel_are_closed(place):
    check_refused(place, list(FOREIGN), lambda _: {"SIGSYS"})


def test_calls_beside_refused_ones_work(place):
    seen, control = outcomes(place, filtered=True), outcomes(place, filtered=False)
    proven = [case for case in BESIDE if control[case] == "ok"]
    assert {case: seen[case] for case in proven if seen[case] != "ok"} == {}
    assert len(proven) > len(BESIDE) / 2


UNKNOWN = """\
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for number in ({clone3}, {openat2}, 999, 4000):
    print(libc.syscall(number, 0, 0), errno.errorcode[ctypes.get_errno()])
"""


def test_calls_that_libc_can_replace_return_enosys(place):
    """Where glibc reads EPERM from clone3, it starts no thread; and who gets ENOSYS from openat2 takes openat."""
    code = UNKNOWN.format(clone3=NUMBERS["clone3"], openat2=NUMBERS["openat2"])
    assert run(place, code, filtered=True) == "-1 ENOSYS\n" * 4
    assert "ENOSYS" not in "".join(run(place, code, filtered=False).splitlines()[:2])

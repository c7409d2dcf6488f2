"""The sandbox's list of system calls: each refusal beside its control, the same call without the filter.

A refusal that looks the same without the filter proves nothing, and its test says so by skipping.
"""

import pytest

from autogen_codeact.sandbox.backends.syscalls import SYSCALLS
from tests.executors.filtered import MACHINE, NUMBERS, PLACES, UNLISTED, outcomes, require, run, run_in_docker
from tests.executors.syscall_probe import ALLOWED, FOREIGN, MODES, REFUSED

pytestmark = pytest.mark.skipif(MACHINE not in SYSCALLS, reason=f"there is no list for {MACHINE}")
BY_ARGUMENT = [name for name in REFUSED if name not in UNLISTED and name.split()[0] in NUMBERS]
BESIDE = [name for name in ALLOWED if name.split()[0] in NUMBERS or name.split()[0] not in MODES]
# libseccomp, which makes the filter for Docker, may not know the newest calls; runc answers those with ENOSYS.
NEW = 450


@pytest.fixture(params=PLACES)
def place(request):
    return require(request)


@pytest.mark.usefixtures("docker_engine")
async def test_engine_means_the_engines_own_profile():
    traced = "import ctypes\nprint(ctypes.CDLL(None).ptrace(0, 0, 0, 0))"
    assert await run_in_docker(traced, seccomp="engine") == "0\n"
    assert await run_in_docker(traced) == "-1\n"


def check_refused(place, case, expected):
    seen, control = outcomes(place, filtered=True)[case], outcomes(place, filtered=False)[case]
    assert seen in expected
    if seen == control:
        pytest.skip(f"not proven on this kernel: without the filter it is {control}, too")


@pytest.mark.parametrize("case", UNLISTED)
def test_call_that_is_not_on_the_list_is_refused(place, case):
    new = place == "docker" and NUMBERS[case] > NEW
    check_refused(place, case, {"EPERM", "ENOSYS"} if new else {"EPERM"})


@pytest.mark.parametrize("case", BY_ARGUMENT)
def test_call_is_refused_by_its_arguments(place, case):
    check_refused(place, case, {"EPERM"})


@pytest.mark.skipif(MACHINE != "x86_64", reason="only x86-64 has further ways into the kernel")
@pytest.mark.parametrize("case", FOREIGN)
def test_other_entry_to_the_kernel_is_closed(place, case):
    check_refused(place, case, {"SIGSYS"})


@pytest.mark.parametrize("case", BESIDE)
def test_call_beside_a_refused_one_works(place, case):
    seen, control = outcomes(place, filtered=True)[case], outcomes(place, filtered=False)[case]
    if control != "ok":
        pytest.skip(f"not proven on this kernel: it says {control} without the filter, too")
    assert seen == "ok"


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

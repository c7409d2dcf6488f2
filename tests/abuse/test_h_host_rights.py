"""H. Rights on the host through a mounted folder, 5: set-user-id and set-group-id modes, file capabilities."""

import json
import os
import stat
from pathlib import Path

import pytest

from codeact_sandbox.backends.seccomp import SYSCALLS
from tests.sandbox.backends.filtered import MACHINE, NUMBERS
from tests.sandbox.backends.syscall_probe import MODES

from .subject import Subject, each_engine

pytestmark = pytest.mark.skipif(MACHINE not in SYSCALLS, reason=f"there is no list of calls for {MACHINE}")

PROBE = Path(__file__).parents[1] / "sandbox/backends/syscall_probe.py"
CALLS = [name for name in MODES if name.split()[0] in NUMBERS]
BITS = {
    "set-user-id": stat.S_ISUID,
    "set-group-id": stat.S_ISGID,
    "both": stat.S_ISUID | stat.S_ISGID,
    "sticky": stat.S_ISVTX,
}
# The user of the code: the mounted folder's owner decides where nothing else is said, so it is another one for bubblewrap.
USERS = {"nobody": (65534, None), "root": (0, "0:0"), "a user of this machine": (4321, None), "named": (0, "4321:4321")}

TRY = f"""
NUMBERS = {NUMBERS}
{PROBE.read_text()}
class Kept:
    def __enter__(self): return tempfile.mkdtemp(dir="/workspace")
    def __exit__(self, *_): pass
tempfile.TemporaryDirectory = Kept
cases = {{f"{{name}} {{bits}}": with_mode(name, mode) for name in {CALLS} for bits, mode in {BITS}.items()}}
print(json.dumps(outcomes(cases)))
"""


async def start(subject: Subject, folder: Path, who: str = "nobody", **options: object) -> None:
    """Mount the folder and run as that user."""
    owner, user = USERS[who]
    if subject.kind.engine == "bubblewrap" and user is not None:
        pytest.skip("bubblewrap has no user=")
    os.chown(folder, owner, owner)
    await subject.start({"bind_dir": folder, **({"user": user} if user else {}), **options}, files=4000)


def with_rights(folder: Path) -> set[str]:
    """What has set-user-id or set-group-id below a folder."""
    found = [Path(place, name) for place, below, names in os.walk(folder) for name in (*below, *names)]
    return {path.name for path in found if path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)}


# Case H5.
@each_engine
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("who", USERS)
async def test_no_call_makes_a_set_user_id_file_on_the_host(folder: Path, subject: Subject, who: str) -> None:
    """Another user of the host had the rights of the sandbox's user by such a file; with user="0:0", root's."""
    await start(subject, folder, who)
    found = json.loads(await subject.out(TRY, timeout=20))
    assert found == {f"{name} {bits}": "ok" if bits == "sticky" else "EPERM" for name in CALLS for bits in BITS}
    assert with_rights(folder) == set()
    # The files are the code's: without those bits it made each of them.
    owner, user = USERS[who]
    made = os.listdir(folder)
    assert {os.stat(folder / name).st_uid for name in made} == {int(user.partition(":")[0]) if user else owner}

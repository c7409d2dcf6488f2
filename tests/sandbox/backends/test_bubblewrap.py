"""What code in a bubblewrap sandbox can't do; each refusal beside a control that shows what would be possible without it."""

import json
import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, Limits
from codeact_sandbox.backends.bubblewrap.interpreter import HostUser, host_user
from tests.sandbox.bubblewrapped import open_folder, pid_one
from tests.sandbox.sandboxes import out, run

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("bubblewrap")]

MYSELF = HostUser(os.geteuid(), os.getegid(), changed=False)
as_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root has files that others can't read and may give them away"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(bubblewrap: None) -> AsyncIterator[BubblewrapCommandLineCodeExecutor]:
    async with BubblewrapCommandLineCodeExecutor(timeout=20) as started:
        yield started


async def seen(executor: BubblewrapCommandLineCodeExecutor, code: str):
    """What the code prints as JSON."""
    return json.loads(await out(executor, code))


def on_the_host(*command: str, user: HostUser | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in no sandbox, as the user that sandboxes belong to or another."""
    user = host_user() if user is None else user
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", **user.popen_options())


class TestPrivileges:
    async def test_no_new_namespaces_even_without_the_filter_of_system_calls(self, executor):
        # In the sandbox's own user namespace the kernel counts how many more there may be.
        assert await out(executor, "print(open('/proc/sys/user/max_user_namespaces').read())") != "0\n\n"
        inside = ("--unshare-all", "--unshare-user", "--cap-drop", "ALL", "--ro-bind", "/", "/")
        assert on_the_host("bwrap", *inside, "unshare", "--user", "true").returncode == 0
        refused = on_the_host("bwrap", *inside, "--disable-userns", "unshare", "--user", "true")
        assert (refused.returncode, "No space left" in refused.stderr) == (1, True)

    @as_root
    async def test_a_file_that_only_root_may_read_stays_unread(self):
        with open_folder() as folder:
            secret, known = folder / "secret", folder / "known"
            for path, mode in ((secret, 0o600), (known, 0o644)):
                path.write_text("hidden treasure")
                path.chmod(mode)
            # User id 65534 of a namespace alone is still the host's root.
            naive = ("--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL", "--ro-bind", "/", "/")
            assert on_the_host("bwrap", *naive, "cat", str(secret), user=MYSELF).stdout == "hidden treasure"
            async with BubblewrapCommandLineCodeExecutor(readable=[folder]) as executor:
                assert await out(executor, f"print(open('{known}').read())") == "hidden treasure\n"
                result = await run(executor, f"open('{secret}')")
            assert result.error.type == "PermissionError"


class TestFilesystem:
    async def test_only_files_that_programs_need_are_visible(self, executor):
        places = await seen(executor, "import json, os; print(json.dumps(sorted(os.listdir('/'))))")
        assert set(places) <= {
            *("bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "tmp", "usr", "workspace"),
            "packages",
        }
        known = await seen(executor, "import json, os; print(json.dumps(os.listdir('/etc')))")
        assert not {"shadow", "sudoers", "ssh", "hostname", "machine-id", "resolv.conf", "environment"} & set(known)
        assert await out(executor, "cat /etc/passwd | cut -d: -f1; hostname", language="sh") == (
            "root\nnobody\nsandbox\n"
        )

    async def test_names_of_users_and_hosts_are_known(self, executor):
        assert await seen(
            executor,
            """
            import getpass, grp, json, os, pwd, socket
            user = pwd.getpwuid(os.getuid())
            home = os.path.expanduser("~") == os.environ["HOME"]
            print(json.dumps([user.pw_name, user.pw_dir, home, grp.getgrgid(os.getgid()).gr_name,
                getpass.getuser(), socket.gethostbyname("localhost"), socket.gethostbyname(socket.gethostname())]))
            """,
        ) == ["nobody", "/tmp/home", True, "nogroup", "sandbox", "127.0.0.1", "127.0.0.1"]

    async def test_readable_folders_can_be_read_and_not_written(self):
        with open_folder() as folder:
            (folder / "deep").mkdir()
            (folder / "deep" / "data.txt").write_text("mine")
            (folder / "link").symlink_to("deep")
            async with BubblewrapCommandLineCodeExecutor(readable=[folder / "link"]) as executor:
                assert await out(executor, f"print(open('{folder}/link/data.txt').read())") == "mine\n"
                for path in (folder, folder / "deep", folder / "link"):
                    assert (await run(executor, f"open('{path}/new', 'w')")).exit_code == 1
                # Nor can the place be swapped for another.
                assert (await run(executor, f"mv {folder} /tmp/other", language="sh")).exit_code != 0
            assert (folder / "deep" / "data.txt").read_text() == "mine"

    @pytest.mark.parametrize("path", ["/", "/tmp", "/etc", "/proc", "/proc/1", "/sys", "/dev/shm", "/workspace/x"])
    async def test_unusable_readable_folders_are_refused(self, path: Any, tmp_path) -> None:
        link = tmp_path / f"link to {path.replace('/', '_')}"
        link.symlink_to(path)
        for given in (path, link):
            with pytest.raises(ValueError, match="can't be shown"):
                BubblewrapCommandLineCodeExecutor(readable=[given])


class TestSecrets:
    async def test_environment_has_only_what_python_and_pip_need(self, executor):
        found = await seen(executor, "import json, os; print(json.dumps(sorted(os.environ)))")
        assert set(found) - {"PWD"} == {
            *(
                "HOME",
                "LANG",
                "LOGNAME",
                "MPLBACKEND",
                "PATH",
                "PIP_BREAK_SYSTEM_PACKAGES",
                "PIP_DISABLE_PIP_VERSION_CHECK",
            ),
            *("PIP_INDEX_URL", "PIP_RETRIES", "PYTHONDONTWRITEBYTECODE", "PYTHONUSERBASE", "USER"),
        }

    @as_root
    async def test_pid_1_holds_nothing_of_the_host_but_its_pipes(self, executor):
        fds = Path(f"/proc/{pid_one(os.getpid())}/fd")
        held = {name: os.readlink(fds / name) for name in os.listdir(fds)}
        kinds = {target.partition(":")[0] for target in held.values()}
        assert {held[number].partition(":")[0] for number in "012"} == {"pipe"}
        # And, only to read, files of the kernel about the sandbox itself, which all code in it can read.
        counters = [
            name for name, target in held.items() if target.startswith(("/sys/fs/cgroup/memory", "/proc/sysvipc/"))
        ]
        assert all(
            re.search(r"^flags:\s+0\d*0$", (fds.parent / "fdinfo" / name).read_text(), re.MULTILINE)
            for name in counters
        )
        assert kinds - {held[name] for name in counters} <= {"pipe", "socket", "anon_inode"}, held


class TestLimits:
    async def test_rlimit_nproc_limits_processes(self, monkeypatch, tmp_path):
        # Without control groups, so that this limit stands alone.
        monkeypatch.setattr("codeact_sandbox.backends.bubblewrap.cgroups.ROOT", tmp_path)
        code = """
            import os, time
            count = 0
            try:
                while count < 200:
                    if os.fork() == 0:
                        time.sleep(60)
                    count += 1
            except BlockingIOError:
                pass
            print(count)
        """
        forked = []
        for pids in (40, 120):
            async with BubblewrapCommandLineCodeExecutor(limits=Limits(pids=pids)) as executor:
                forked.append(int(await out(executor, code)))
                assert await out(executor, "print('next')") == "next\n"
        assert 20 < forked[0] < 40
        assert 100 < forked[1] < 120

"""H 7: blocks of process mode against the packages that others install, and against the commands that install them."""

import pytest

from .subject import Subject, in_process_mode, in_sessions, until_other_homes_are_removed

SLOW = """
    import os
    os.makedirs("/workspace/slow", exist_ok=True)
    with open("/workspace/slow/setup.py", "w") as file:
        file.write("import os, time; open(os.environ['TMPDIR'] + '/left', 'w'); time.sleep(60)")
"""
WHAT_IS_LEFT = "import os; print([name for name in os.listdir('/packages') if not name.startswith('home-')])"


@in_process_mode
async def test_h7_pip_that_is_killed_leaves_nothing_in_the_folder_of_packages(subject: Subject) -> None:
    await subject.out(SLOW)
    killed = await subject.run("pip install --no-build-isolation --no-index ./slow", "sh", timeout=5)
    assert killed.outcome == "timeout", killed
    assert await subject.out(WHAT_IS_LEFT) == "[]\n"
    await until_other_homes_are_removed(subject)


@pytest.mark.timeout(300)
@in_process_mode
async def test_h7_quotes_and_a_comment_do_not_make_pip_another_command(subject):
    # A shell finds itself on this path, and no pip: one that runs is that of a recognized command.
    await subject.start({"environment": {"PATH": "/tmp/bin"}})
    await subject.out("import os; os.mkdir('/tmp/bin'); os.symlink('/bin/sh', '/tmp/bin/sh')")
    for wanted in ("""'absent==1.*' "absent~=1.0" absent!=2  # what's this? {no} $(command)""", "'a$(: > /tmp/x)'"):
        result = await subject.run(f"pip install --no-index {wanted}", "sh", timeout=60)
        assert result.outcome == "error", result
        assert result.notes == (), result
        assert "\nERROR: " in result.output, result
    made = "import os; print(os.path.exists('/tmp/x'))"
    assert await subject.out(made) == "False\n"
    for other in ("*.whl", "~/absent", "$HOME", '"$(: > /tmp/x)"', "{a,b}", "absent; true"):
        result = await subject.run(f"pip install --no-index {other}", "sh", timeout=60)
        assert any("pip install" in note for note in result.notes) or result.outcome == "ok", result
        assert "pip: not found" in result.output, result
    assert await subject.out(made) == "True\n"


@in_process_mode
async def test_h7_the_search_for_a_pip_command_holds_nobody_up(subject: Subject) -> None:
    """It runs in PID 1, where one word of a megabyte took 13 s."""
    for long in ("a" * 1_000_000, "a " * 500_000, "'" * 999_999):
        result = await subject.run(f"pip install {long}", "sh")
        assert result.outcome in ("ok", "error"), result


PACKAGE = """
    import os
    os.makedirs("/workspace/source/mine", exist_ok=True)
    with open("/workspace/source/setup.py", "w") as file:
        file.write("from setuptools import setup; setup(name='mine', version='1', packages=['mine'])")
    with open("/workspace/source/mine/__init__.py", "w") as file:
        file.write("VALUE = 7")
    # The same as a wheel, which is installed without a build.
    import zipfile
    with zipfile.ZipFile("/workspace/mine-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("mine/__init__.py", "VALUE = 7")
        wheel.writestr("mine-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: mine\\nVersion: 1\\n")
        wheel.writestr("mine-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("mine-1.dist-info/RECORD", "mine/__init__.py,,\\n")
    # What pip, its interpreter or its build could take for its own, where it runs.
    mark = "open('/packages/planted', 'w'); open('/tmp/planted', 'w')"
    for name in ("pip", "runpy", "sitecustomize", "usercustomize", "site", "os", "json", "encodings"):
        with open(f"/workspace/{name}.py", "w") as file:
            file.write(mark)
    with open("/workspace/pip.conf", "w") as file:
        file.write("[global]\\ntarget = /tmp/elsewhere\\n")
"""
CLEAN = "import glob, os\n[os.remove(path) for path in glob.glob('/workspace/*.py') + glob.glob('/workspace/pip.conf')]"
INSTALL = "# Installs it.\npip install --no-build-isolation --no-index ./source\n"
INSTALL_WHEEL = "pip install --no-index --force-reinstall ./mine-1-py3-none-any.whl\n"
CHANGE = """
    import ctypes, glob, os, subprocess, sys
    folder = os.path.dirname(__import__("mine").__file__)
    site = os.path.dirname(folder)
    def attempt(call):
        try: call(); print("done", call.__code__.co_firstlineno)
        except OSError: pass
    libc = ctypes.CDLL(None, use_errno=True)
    root = "/proc/self/root"
    os.symlink(site, "/tmp/link")
    for path in (folder + "/__init__.py", root + folder + "/__init__.py", "/tmp/link/mine/__init__.py"):
        attempt(lambda: open(path, "a"))
        attempt(lambda: open(path, "r+b"))
        attempt(lambda: os.truncate(path, 0))
        attempt(lambda: os.remove(path))
        attempt(lambda: os.rename(path, path + "x"))
        attempt(lambda: os.rename(path, "/tmp/x"))
        attempt(lambda: os.link(path, "/tmp/x"))
    fd = os.open(folder + "/__init__.py", os.O_RDONLY)
    attempt(lambda: open(f"/proc/self/fd/{fd}", "w"))
    open("/tmp/new.pth", "w").close()
    for place in (site, root + site, "/tmp/link", "/packages"):
        attempt(lambda: open(place + "/new.pth", "w"))
        attempt(lambda: os.mkdir(place + "/new"))
        attempt(lambda: os.symlink("/tmp", place + "/new"))
        attempt(lambda: os.mkfifo(place + "/new"))
        attempt(lambda: os.rename("/tmp/new.pth", place + "/new.pth"))
        attempt(lambda: os.link("/tmp/new.pth", place + "/new.pth"))
    attempt(lambda: os.rename(site, site + "x"))
    attempt(lambda: os.rename("/packages", "/tmp/packages"))
    print(subprocess.run([sys.executable, "-c", f"open({site!r} + '/new.pth', 'w')"], capture_output=True).returncode)
"""


@in_process_mode
@pytest.mark.timeout(300)
async def test_h7_only_pip_install_blocks_change_packages(subject: Subject) -> None:
    await subject.start(memory="512m", tmp="64m", workspace="64m")
    await subject.out(PACKAGE)
    installed = await subject.run(INSTALL, "sh", timeout=60)
    assert installed.outcome == "ok", installed
    await subject.out(CLEAN)
    look = "import os; print(os.path.exists('/packages/planted'), os.path.exists('/tmp/planted'))"
    assert await subject.out(look) == "False False\n"
    for look in (
        "import mine; print(mine.VALUE)",
        "import subprocess; subprocess.run(['python3', '-c', 'import mine; print(mine.VALUE)'])",
    ):
        assert await subject.out(look) == "7\n"
    assert await subject.out(CHANGE) == "1\n"
    assert await subject.out("import mine; print(mine.VALUE)") == "7\n"
    # What is more than that one command has no such rights, and is told how to get them.
    for more in (
        "set -e\n" + INSTALL_WHEEL + "touch /packages/planted",
        "pip install --no-index ./absent; true && false",
        "pip install --no-index $(echo ./absent) || exit 1",
    ):
        refused = await subject.run(more, "bash", timeout=60)
        assert refused.outcome == "error", refused
        assert any("pip install" in note for note in refused.notes), refused
    removed = await subject.run("python3 -m pip uninstall --yes mine", "sh", timeout=60)
    assert removed.outcome == "ok", removed
    assert (await subject.run("import mine")).outcome == "error"


@in_sessions
@pytest.mark.timeout(300)
async def test_h7_packages_of_a_session_are_installed_by_any_block(subject: Subject) -> None:
    """There, all blocks have one interpreter, and nothing to protect from each other."""
    await subject.start(memory="512m", tmp="64m", workspace="64m")
    await subject.out(PACKAGE)
    await subject.out(CLEAN)
    installed = await subject.run("cd /workspace && " + INSTALL_WHEEL, "sh", timeout=60)
    assert installed.outcome == "ok", installed
    assert await subject.out("import mine, os; print(mine.VALUE, os.path.exists('/tmp/planted'))") == "7 False\n"

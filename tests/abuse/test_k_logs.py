"""K2, K3. The log of a run in or around the workspace: code neither reads nor changes it."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autogen_codeact.batch.folder import WORK, BatchFolder
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.runs.errors import RunFolderError
from autogen_codeact.runs.plan import make_plan
from autogen_codeact.runs.redaction import Redaction
from autogen_codeact.runs.writer import LogWriter
from codeact_sandbox import SandboxFileError

from ..cli.support import codeact, start, wait_until
from ..runs.logs import started, text
from .subject import Subject

LIST = """
import os
print(sorted(os.path.join(at, name) for at, _, names in os.walk(".") for name in names if not name.startswith("tmp_code")))
"""
WRITE = """
import os
for name in {names!r}:
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    open(name, "w").write("planted")
"""


# Case K2.
async def test_a_log_in_the_workspace_is_neither_sent_nor_stored(subject: Subject) -> None:
    await subject.start({"delete_tmp_files": True})
    run, batch = subject.work_dir / "runs" / "42", subject.work_dir / "batch"
    writer = await LogWriter.create(run, Redaction())
    tasks = BatchFolder.open(batch, {})
    try:
        await writer.write(started(), sync=True)
        (subject.work_dir / "runs" / "beside").write_text("seen")
        (subject.work_dir / "by-link").symlink_to(run)
        assert (await subject.out(LIST)) == "['./runs/beside']\n"
        names = [
            "runs/42/events.jsonl",
            "runs/42/files/x",
            "batch/results.jsonl",
            f"batch/{WORK}/x",
            "made",
            "by-link/new",
        ]
        result = await subject.run(WRITE.format(names=names))
        assert result.error is not None
        assert result.error.type == "FilesNotStored"
        notes = {each.name: each.note for each in result.artifacts if each.note}
        assert set(notes) == {name for name in names if not name.startswith(("made",))}, result
        assert "keeps the log of a run, a batch" in str(notes["runs/42/events.jsonl"])
        renamed = run.rename(subject.work_dir / "renamed")  # by inode, not by name
        result = await subject.run(WRITE.format(names=["renamed/events.jsonl"]))
        assert [each.note is None for each in result.artifacts] == [False], result
        await writer.write(text("still here"), sync=True)
    finally:
        await writer.close()
        tasks.close()
    assert {*os.listdir(renamed)} <= {"events.jsonl", ".reserve"}
    assert b"planted" not in (renamed / "events.jsonl").read_bytes() + (batch / "results.jsonl").read_bytes()
    assert (subject.work_dir / "made").read_text() == "planted"
    await subject.check_next_block()


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that the sandbox's user can reach; pytest's own are closed to it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        os.chmod(name, 0o777)
        yield Path(name)


# Case K2.
async def test_a_log_around_the_workspace_or_in_a_mounted_folder_is_refused(reachable: Path) -> None:
    tmp_path = reachable
    writer = await LogWriter.create(tmp_path / "run", Redaction())
    try:
        executor = BubblewrapCommandLineCodeExecutor(work_dir=tmp_path / "run" / "work")
        with pytest.raises(SandboxFileError, match="Use another work_dir"):
            await executor.start()
        for bind in (tmp_path, tmp_path / "run", tmp_path / "run" / "below"):
            bind.mkdir(exist_ok=True)
            with pytest.raises(SandboxFileError, match="Use a folder beside them"):
                await BubblewrapCommandLineCodeExecutor(bind_dir=bind).start()
    finally:
        await writer.close()
    async with BubblewrapCommandLineCodeExecutor(bind_dir=tmp_path):
        with pytest.raises(RunFolderError, match=r"mounted in a sandbox \(bind_dir=\): use another one"):
            await LogWriter.create(tmp_path / "second", Redaction())


# Case K3.
@pytest.mark.usefixtures("bubblewrap")
def test_code_of_a_log_is_run_unasked_only_if_the_user_has_made_it(tmp_path: Path) -> None:
    """An approved block removes the approval from the log; and what a copied or changed log says."""
    proof = "open('proof', 'w').write('unasked')"
    attack = "\n".join(
        [
            "import os, time",
            "for at, _, names in os.walk('.'):",
            "    for name in names:",
            "        path = os.path.join(at, name)",
            "        text = open(path, 'rb').read()",
            "        open(path, 'wb').write(text.replace(b'approval_func', b''))",
            "open('done', 'w').write('')",
        ]
    )
    answers = [f"```python\n{each}\n```" for each in (attack, "import time\ntime.sleep(60)", proof)]
    (tmp_path / "answers.json").write_text(json.dumps([*answers, "Done."]))
    work = tmp_path / "work"
    work.mkdir()
    options = ["--model", f"replay:{tmp_path / 'answers.json'}", "--sandbox", "bubblewrap", "--work-dir", ".", "--act"]
    log = work / "runs" / "42" / "events.jsonl"
    with start("run", "Go.", *options, "--save", "runs/42", cwd=work) as process:
        wait_until(lambda: log.exists() and log.read_bytes().count(b'"block_started"') == 2, "the second block")
        process.kill()
    assert (work / "done").exists()
    copy = tmp_path / "copy"
    shutil.copytree(log.parent, copy)
    changed = tmp_path / "changed"
    assert make_plan(log.parent).chain is not None
    lines = log.read_bytes()
    log.write_bytes(lines.replace(b"time.sleep(60)", b"time.sleep(61)"))
    assert make_plan(log.parent).chain is None
    shutil.copytree(log.parent, changed)
    log.write_bytes(lines)
    for folder, arguments in ((copy, ["--trust"]), (changed, ["--trust"]), (log.parent, ["--approve"])):
        before = (folder / "events.jsonl").read_bytes()
        done = codeact("resume", folder, *arguments, cwd=work)
        assert "not approved" in done.out, (folder, done)  # there is no terminal to ask in
        assert not (work / "proof").exists(), folder
        (folder / "events.jsonl").write_bytes(before)
    refused = codeact("resume", copy, cwd=work)
    assert refused.status == 2
    assert "was not made by you on this machine" in refused.err
    done = codeact("resume", log.parent, cwd=work)
    assert (done.status, (work / "proof").read_text()) == (0, "unasked"), done

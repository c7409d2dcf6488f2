"""Bad input of `codeact batch`: one line that says what to do, before anything is started."""

import os
import subprocess
from contextlib import contextmanager

import pytest

from tests.cli.batch_support import ENV, Model, answers, doubled, rows, write_tasks
from tests.cli.support import start, wait_until

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.timeout(200)]

WORK_DIR = (
    "codeact: --work-dir is not for a batch: tasks would overwrite each other's files. Use `files` of a task, or --data for all; "
    "each run's folder keeps what its code has made.\n"
)


@pytest.fixture(scope="module")
def model():
    with Model() as made:
        yield made


@contextmanager
def small_disk(folder, size):
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "codeact-test", str(folder)]
    if os.geteuid() or subprocess.run(command, check=False, capture_output=True, timeout=20).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--work-dir", "."], WORK_DIR),
        (["--budget", "cost=1"], "codeact: --budget cost=… needs --budget price=P:C"),
        (["--budget", "price=1:-2"], "codeact: --budget price=1:-2 is not a pair of prices"),
        (["--option", "model_calls_per_minute=0"], "codeact: --option model_calls_per_minute: Input should be "),
        (["--budget", "seconds=nan"], "codeact: --budget seconds: Input should be "),
        (["--option", "nothing=1"], "codeact: "),
    ],
    ids=["work-dir", "cost", "price", "option", "seconds", "unknown"],
)
def test_invalid_options_are_an_error(model, tmp_path, options, message):
    done = model.run(write_tasks(tmp_path, 2), tmp_path / "out", *options, cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(message)
    assert not (tmp_path / "out").exists()


def test_folder_with_other_files_is_refused(model, tmp_path):
    done = model.run(write_tasks(tmp_path, 2), tmp_path)
    assert done.status == 2
    assert f"{tmp_path} has other things in it and no batch: give a new or an empty folder." in done.err


def test_folder_that_can_not_be_created_is_an_error(model, tmp_path):
    done = model.run(write_tasks(tmp_path, 2), "/proc/none")
    assert done.status == 2
    assert "/proc/none can't be written" in done.err
    file = tmp_path / "file"
    file.touch()
    done = model.run(write_tasks(tmp_path, 2), file)
    assert done.status == 2
    assert f"{file} is a file" in done.err


def test_full_disk_ends_the_batch_and_it_goes_on_with_more_space(model, tmp_path):
    # Each is kept in its log and in its row, so that few tasks fill the disk.
    tasks = write_tasks(tmp_path, 12, padding=lambda number: "x" * 40_000)
    with small_disk(tmp_path / "disk", "256k"):
        out = tmp_path / "disk" / "out"
        done = model.run(tasks, out)
        assert done.status == 2
        assert "No space left on device" in done.err
        assert "Traceback" not in done.err
        finished = answers(out)
        assert finished.items() <= doubled(12).items()
        assert len(finished) < 12
        subprocess.run(["mount", "-o", "remount,size=64m", str(tmp_path / "disk")], check=True, timeout=20)
        assert model.run(tasks, out).status == 0
        assert answers(out) == doubled(12)
        assert len(rows(out)) == 12


def test_two_commands_do_not_work_on_one_folder(model, tmp_path):
    tasks = write_tasks(tmp_path, 2)
    model.held.clear()
    before = sum(model.asked.values())
    with start(*model.arguments(tasks, tmp_path / "out"), env=ENV) as first:
        wait_until(lambda: sum(model.asked.values()) > before, "the first request", 40)
        done = model.run(tasks, tmp_path / "out")
        assert done.status == 2
        assert f"another process is working on {tmp_path / 'out'}" in done.err
        model.held.set()
        out, _ = first.communicate(timeout=60)
        assert first.returncode == 0
        assert out.startswith("2 tasks: 2 completed\n")

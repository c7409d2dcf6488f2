"""K5. Files with protected names are written by nothing that takes names from a log or a sandbox."""

import hashlib

from autogen_codeact.runs import export_files, load_run
from autogen_codeact.runs.events import BlockFinished
from autogen_codeact.runs.results import ArtifactRecord, ResultRecord, StoredFile
from autogen_codeact.runs.text import download_name
from codeact_sandbox.types.protected_names import protected_name

from ..runs.logs import lines, started, write_log
from .test_h_protected import HARMLESS, VARIANTS

REPOSITORY = ["repo/HEAD", "repo/objects/x", "repo/refs/x"]


def foreign_run(parent, files):
    """Return the folder of a run whose log names files that the code has made, with their content."""
    parent.mkdir(exist_ok=True)
    stored = {name: StoredFile(sha256=hashlib.sha256(data).hexdigest(), size=len(data)) for name, data in files.items()}
    artifacts = [
        ArtifactRecord(name=name, size=file.size, media_type="text/plain", file=file) for name, file in stored.items()
    ]
    record = ResultRecord(kind="sandbox", exit_code=0, output="", artifacts=artifacts)
    folder = write_log(parent / "run", lines([started(), BlockFinished(agent="a", number=1, result=record)]))
    (folder / "files").mkdir()
    for name, file in stored.items():
        (folder / "files" / str(file.sha256)).write_bytes(files[name])
    return folder


def written_below(folder, order=()):
    """Return the names of the files in a folder, in the order of a list."""
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    return sorted(names, key=lambda name: order.index(name) if order else name)


# Case K5.
def test_an_export_of_files_leaves_protected_names_out(tmp_path, caplog):
    for number, name in enumerate(VARIANTS):
        out = tmp_path / f"out-{number}"
        run = load_run(foreign_run(tmp_path / str(number), {name: b"planted", "a.txt": b"text"}))
        assert export_files(run, out) == ["a.txt"], name
        assert written_below(out) == ["a.txt"], name
        assert "Not written, because programs on the host act on such files" in caplog.messages[-1], name
    harmless = [*HARMLESS, *REPOSITORY]
    run = load_run(foreign_run(tmp_path, dict.fromkeys(harmless, b"text")))
    written = export_files(run, tmp_path / "out")
    assert written == written_below(tmp_path / "out", harmless)
    assert len(written) == len(harmless) - 1  # the last file that would make a repository
    assert set(HARMLESS) < set(written)


# Case K5.
def test_a_download_has_no_protected_name():
    for name in VARIANTS:
        for each in (name, name.rpartition("/")[2]):
            assert not protected_name(download_name(each)), each
    assert [download_name(name) for name in ("sub/a.txt", "mise.toml", ".envrc", "..")] == [
        "a.txt",
        "file-mise.toml",
        "envrc",
        "",
    ]

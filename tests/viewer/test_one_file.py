"""A run as one HTML page: what is written."""

import base64
import hashlib
import io
import json
import re
import tracemalloc
from html.parser import HTMLParser

import pytest

from autogen_codeact.runs import load_run
from autogen_codeact.runs.events import RunFinished
from autogen_codeact.runs.results import ArtifactRecord, DisplayRecord
from autogen_codeact.viewer import one_file
from autogen_codeact.viewer.one_file import export_html, to_json, write_html
from autogen_codeact.viewer.static import page_script
from autogen_codeact.viewer.steps import RunSteps
from tests.cases import case
from tests.runs.logs import lines, started, text, whole_run, write_log

from .runs import block, store

HOSTILE = "</script><script>alert(1)</script><!-- <script> ]]>\u2028\u2029 &lt; 'x' \"y\""


class Elements(HTMLParser):
    """The script elements of a page, and the text of its title."""

    def __init__(self, page):
        super().__init__()
        self.scripts, self.title, self._inside = [], "", None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), []))

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1][1].append(data)
        elif self._inside == "title":
            self.title += data

    def parts(self, name):
        """Return the documents of all parts, in order, after checking the numbers that the parts are for."""
        found = []
        for attributes, data in self.scripts:
            if attributes.get("data-part") == name:
                documents = json.loads("".join(data))
                assert int(attributes["data-from"]) == documents[0]["number"] == len(found) + 1
                assert int(attributes["data-to"]) == documents[-1]["number"]
                found += documents
        return found

    def by_id(self, name):
        return next(("".join(data) for attributes, data in self.scripts if attributes.get("id") == name), None)


def page_of(folder):
    write_html(load_run(folder), file := io.StringIO())
    return Elements(file.getvalue())


def test_the_page_has_the_documents_of_the_run(tmp_path):
    folder = write_log(tmp_path / "run", lines(whole_run()))
    steps = RunSteps(folder)
    steps.view.read_all()
    page = page_of(folder)
    assert page.title == "coder: What is 6*7?"
    assert page.parts("steps") == steps.steps(1, len(steps))
    assert page.parts("summaries") == steps.summaries(1, len(steps))
    assert json.loads(page.by_id("run-header")) == steps.header()
    assert steps.header()["outcome"] == "completed"


def test_text_of_a_run_can_not_end_its_element(tmp_path):
    events = [started(HOSTILE), text(HOSTILE), *block(1, output=HOSTILE), RunFinished(outcome="completed")]
    folder = write_log(tmp_path / "run", lines(events))
    write_html(load_run(folder), file := io.StringIO())
    page = Elements(file.getvalue())
    steps = page.parts("steps")
    assert [step["kind"] for step in steps] == ["task", "message", "block", "end"]
    for shown in (steps[0]["text"], steps[1]["text"], steps[2]["output"], page.title):
        assert "</script><script>alert(1)</script><!-- <script>" in shown
    # Nothing of it is in the file as it is, and no character that is a line break to JavaScript only.
    before_script = file.getvalue().rpartition("<script>")[0]
    assert "alert(1)</" not in before_script
    assert not {"\u2028", "\u2029"} & set(before_script)
    kinds = [(attributes.get("type"), attributes.get("data-part")) for attributes, _ in page.scripts]
    json_type = "application/json"
    assert kinds == [*[(json_type, "steps")] * 4, (json_type, "summaries"), (json_type, None), (None, None)]


def test_the_page_loads_nothing_but_its_own_script(tmp_path):
    write_html(load_run(write_log(tmp_path / "run", lines(whole_run()))), file := io.StringIO())
    page = file.getvalue()
    assert re.findall(r'<link rel="\w+" href="[^:]*:', page) == ['<link rel="icon" href="data:']
    assert not re.search(r"<script[^>]* src|__BASE__/|__NONCE__", page.replace(page_script(), ""))
    (policy,) = re.findall('<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page.partition("<style")[0])
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (nonce,) = re.findall('<style nonce="([^"]*)">', page.partition("<script")[0])
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'nonce-{nonce}'; img-src blob: data:; "
        "base-uri 'none'; form-action 'none'"
    )


def test_json_in_the_page_is_ascii_and_has_no_brackets_of_html():
    value = {HOSTILE: ["\u202e\x00\ud800", 1.5, None]}
    written = to_json(value)
    assert json.loads(written) == value
    assert written.isascii()
    assert not set("<>&") & set(written)


def test_figures_and_files_are_inside_once(tmp_path):
    folder = tmp_path / "run"
    figure, table = store(folder, b"an image"), store(folder, b"a,b\n1,2\n")
    shown = DisplayRecord(name="figure-1.png", data={"text/plain": "<Figure>"}, files={"image/png": figure})
    saved = ArtifactRecord(name="table.csv", size=8, media_type="text/csv", file=table)
    events = [started(), *block(1, displays=[shown], artifacts=[saved]), *block(2, displays=[shown])]
    page = page_of(write_log(folder, lines(events)))
    (first, second) = page.parts("steps")[1:]
    assert first["displays"][0]["data"]["image/png"]["file"]["sha256"] == figure.sha256
    assert second["displays"] == first["displays"]
    files = {
        attributes["id"]: "".join(data) for attributes, data in page.scripts if attributes.get("type") == "text/plain"
    }
    assert {name: base64.b64decode(data) for name, data in files.items()} == {
        f"file-{figure.sha256}": b"an image",
        f"file-{table.sha256}": b"a,b\n1,2\n",
    }
    assert len([each for each in page.scripts if each[0].get("type") == "text/plain"]) == 2


@pytest.mark.parametrize("damage", [None, b"another image"])
def test_a_figure_that_is_missing_or_changed_is_left_out(tmp_path, damage):
    folder = tmp_path / "run"
    figure = store(folder, b"an image")
    shown = DisplayRecord(name="figure-1.png", data={"text/plain": "<Figure>"}, files={"image/png": figure})
    write_log(folder, lines([started(), *block(1, displays=[shown])]))
    file = folder / "files" / figure.sha256
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
    page = page_of(folder)
    assert [step["kind"] for step in page.parts("steps")] == ["task", "block"]
    assert page.by_id(f"file-{figure.sha256}") is None


def test_large_files_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(one_file, "MAX_FILE", 100)
    monkeypatch.setattr(one_file, "MAX_FILES", 150)
    folder = tmp_path / "run"
    files = [store(folder, bytes([n]) * size) for n, size in enumerate((101, 90, 80, 60))]
    shown = [DisplayRecord(name=f"{n}.png", data={}, files={"image/png": each}) for n, each in enumerate(files)]
    page = page_of(write_log(folder, lines([started(), *block(1, displays=shown)])))
    assert [page.by_id(f"file-{each.sha256}") is not None for each in files] == [False, True, False, True]
    assert [step["kind"] for step in page.parts("steps")] == ["task", "block"]


def test_incomplete_runs_are_written_as_far_as_they_go(tmp_path_factory):
    for change, outcome, kinds in [
        (lambda log: log[:5], "interrupted", ["task", "message", "message", "block"]),
        (
            lambda log: [*log[:-1], log[-1][:40]],
            "interrupted",
            ["task", "message", "message", "block", "message", "gap"],
        ),
        (
            lambda log: [*log[:2], b"damaged\n", *log[3:]],
            "completed",
            ["task", "message", "gap", "message", "block", "message", "end"],
        ),
    ]:
        with case(change, outcome, kinds):
            tmp_path = tmp_path_factory.mktemp("case")
            folder = write_log(tmp_path / "run", change(lines(whole_run())))
            page = page_of(folder)
            assert json.loads(page.by_id("run-header"))["outcome"] == outcome
            assert [step["kind"] for step in page.parts("steps")] == kinds


def test_a_long_run_is_written_in_parts_with_little_memory(tmp_path):
    folder = write_log(tmp_path / "run", lines([started(), *(text(f"{number:04}" * 10_000) for number in range(300))]))

    class Sink(io.TextIOBase):
        size = parts = 0

        def write(self, data):
            self.size += len(data)
            self.parts += 'data-part="steps"' in data
            return len(data)

    run, sink = load_run(folder), Sink()
    tracemalloc.start()
    try:
        write_html(run, sink)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sink.size > 12_000_000
    assert sink.parts > 20
    assert peak < 6_000_000, peak


def test_the_file_is_replaced_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    folder, target = write_log(tmp_path / "run", lines(whole_run())), tmp_path / "out.html"
    export_html(load_run(folder), target)
    written = target.read_bytes()
    assert written.startswith(b"<!doctype html>")
    assert len(written) < sum(each.stat().st_size for each in folder.rglob("*")) + 2_000_000

    def fails(value):
        raise MemoryError

    monkeypatch.setattr(one_file, "to_json", fails)
    with pytest.raises(MemoryError):
        export_html(load_run(folder), target)
    assert target.read_bytes() == written
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.html", "run"]

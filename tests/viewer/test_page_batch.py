"""The page of a batch, with real results of the samples, in a browser."""

import json
import shutil
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from autogen_codeact.viewer import serve
from tests.cli.support import codeact

from .watching import Watched, reading_problems

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]
SAMPLES = Path(__file__).parents[2] / "samples"


def run_batch(folder, name, answers):
    """Run the sample's tasks, one that can't be used, and one whose recording has no answer."""
    tasks, model = folder / "tasks.jsonl", folder / f"{name}.json"
    more = [
        {"id": "bad", "task": "Read it.", "files": {"none": "/none"}},
        {"id": "fails", "task": "Fail <b>here</b>\u202e."},
    ]
    tasks.write_text((SAMPLES / "batch_tasks.jsonl").read_text() + "\n".join(map(json.dumps, more)))
    model.write_text(answers)
    options = ("--act", "--sandbox", "bubblewrap", "--model", f"replay:{model}", "--option", "attempts=1")
    done = codeact("batch", tasks, "--out", folder / name, *options)
    assert done.status == 1, done.err
    return folder / name


@pytest.fixture(scope="module")
def batch(bubblewrap, tmp_path_factory):
    return run_batch(tmp_path_factory.mktemp("batches"), "new", (SAMPLES / "batch_answers.json").read_text())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(batch):
    async with serve(batch) as url:
        yield url


async def test_each_task_has_verdict_expected_answer_and_error(page, address):
    watched = Watched(page, address)
    await page.goto(address)
    rows = page.locator(".task-row")
    await expect(rows).to_have_count(5)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Batch new")
    await expect(page.locator(".amount")).to_have_text("5 tasks: 2 passed, 1 not passed, 1 failed, 1 invalid")

    wrong = rows.filter(has_text="below 10000?")
    await expect(wrong.locator("h2")).to_have_text("How many prime numbers are below 10000?not passed")
    await expect(wrong.locator(".field")).to_have_text(
        [
            "expected1229",
            "answerThere are 1228 of them.",
            "checkexpected '1229', not '1228'",
        ]
    )
    await expect(rows.filter(has_text="/none is neither a file nor a folder").first).to_contain_text("invalid")
    failed = rows.filter(has_text="Fail <b>here</b>")
    await expect(failed.locator("h2")).to_contain_text("\\u202e.")
    await expect(failed).to_contain_text("has no answers for the task")
    assert (watched.requests, watched.messages, watched.dialogs) == ([], [], [])


async def test_rows_are_filtered_searched_and_opened_with_the_keyboard(page, address):
    await page.goto(address)
    rows = page.locator(".task-row")
    await expect(rows).to_have_count(5)
    await page.get_by_label("Verdict").select_option("not passed")
    await expect(rows).to_have_count(1)
    await expect(rows.locator("h2")).to_have_text("How many prime numbers are below 10000?not passed")
    assert page.url.endswith("?outcome=not+passed")
    await page.get_by_label("Verdict").select_option("")
    await page.get_by_role("searchbox").fill("no answers")
    await expect(rows).to_have_count(1)
    await page.get_by_role("searchbox").fill("nothing of this")
    await expect(page.locator(".empty")).to_have_text("No task fits the search. Clear it to see all.")
    await page.get_by_role("searchbox").fill("")
    await page.get_by_label("Verdict").select_option("passed")
    await expect(rows).to_have_count(2)

    await page.keyboard.press("Escape")
    for _ in range(2):
        await page.keyboard.press("j")
    await page.keyboard.press("k")
    focused = page.locator(".task-row a:focus")
    await expect(focused).to_have_count(1)
    name = await focused.inner_text()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text(name)
    await page.get_by_role("link", name="Batch").click()
    await expect(rows).to_have_count(5)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_screen_readers_can_read_all(page, address, scheme):
    await page.emulate_media(color_scheme=scheme)
    await page.goto(address)
    await expect(page.locator(".task-row")).to_have_count(5)
    assert await reading_problems(page) == []


async def test_new_rows_appear_and_damaged_lines_cost_nothing(page, batch, tmp_path):
    folder = tmp_path / "batch"
    shutil.copytree(batch, folder)
    lines = (folder / "results.jsonl").read_text().splitlines()
    (folder / "results.jsonl").write_text("")
    async with serve(folder) as url:
        await page.goto(url)
        await expect(page.locator(".empty")).to_have_text(
            "The batch has no results yet. They appear here when its first task has ended."
        )
        (folder / "results.jsonl").write_text("\n".join([*lines, '{"id": 1}', ""]))
        await expect(page.locator(".task-row")).to_have_count(5)

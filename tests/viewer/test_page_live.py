"""A run that goes on, in the viewer's page: steps and output as they come, questions, and the stop button."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from autogen_core import CancellationToken
from playwright.async_api import expect

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, ToolApproval
from autogen_codeact.runs import recorded
from autogen_codeact.viewer import ApprovalQuestion, RunControl, serve
from tests.runs.logs import lines, whole_run, write_log

from .runs import model, python
from .watching import Watched, reading_problems, until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("bubblewrap")]
END_IS_SEEN = """() => {
    const room = document.documentElement.scrollHeight - scrollY - innerHeight;
    return room < 60 || room;
}"""
SUBJECT = "<img src=x onerror=alert(1)> for \u202eyou"


class LiveRun:
    """A run with a page that watches it."""

    def __init__(self, page, folder):
        self.page = page
        self.folder = folder
        self.token = CancellationToken()
        self.control = RunControl(folder, self.token.cancel)
        self.pauses = [asyncio.Event() for _ in range(3)]
        self.answered_elsewhere = asyncio.Event()
        self.sent = []
        self.executor = None

    async def pause(self, number: int) -> None:
        """Wait until the test lets the code go on."""
        await asyncio.wait_for(self.pauses[number].wait(), 50)

    async def send_mail(self, to: str, subject: str) -> str:
        """Send a mail."""
        self.sent.append((to, subject))
        return "sent"

    async def approve(self, request):
        """Ask on the page about mails, unless somebody answers elsewhere."""
        if request.name == "pause":
            return ToolApproval(True)
        question = ApprovalQuestion("call", "It can't be undone.", request.name, dict(request.arguments), "coder")
        asked = asyncio.create_task(self.control.ask(question))
        elsewhere = asyncio.create_task(self.answered_elsewhere.wait())
        done, left = await asyncio.wait([asked, elsewhere], return_when=asyncio.FIRST_COMPLETED, timeout=50)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return ToolApproval(asked in done and asked.result(), "somebody said no")

    async def run(self, *answers):
        """Run an agent with fixed answers of its model."""
        async with BubblewrapCommandLineCodeExecutor(mode="session", timeout=50) as executor:
            self.executor = executor
            agent = CodeActAgent(
                "coder",
                executor,
                model_client=model(*answers),
                tools=[self.pause, self.send_mail],
                approve_tool=self.approve,
                stream_output=True,
            )
            task = "Do something that takes long."
            async for _ in recorded(agent, task=task, path=self.folder, cancellation_token=self.token):
                pass


@asynccontextmanager
async def live(page, folder, *answers, alone=True):
    """Start a run, and open its page, which asks nothing of other servers if it is `alone`."""
    run = LiveRun(page, folder / "live")
    async with serve(folder, control=run.control) as address:
        watched = Watched(page, address)
        task = asyncio.create_task(run.run(*answers))
        try:
            async with asyncio.timeout(30):
                while not (run.folder / "events.jsonl").exists():  # noqa: ASYNC110 - nothing tells when a file is there
                    await asyncio.sleep(0.02)
            await page.goto(f"{address}runs/live")
            yield run, task
            await asyncio.gather(task, return_exceptions=True)
            await expect(page.locator(".bar .stop")).to_be_hidden()
            # The page must not miss its server.
            await page.goto("about:blank")
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert watched.dialogs == []
    assert not alone or (watched.requests, watched.messages) == ([], [])


async def test_steps_and_output_appear_as_they_come(page, tmp_path):
    block = "print('first')\npause(number=0)\nprint('second <b>')\npause(number=1)"
    async with live(page, tmp_path, python(block, "I **wait**."), python("final_answer(42)")) as (run, _):
        await expect(page.locator(".status")).to_have_text("running")
        step = page.locator("article.running.kind-block")
        await expect(step.locator(".output pre")).to_have_text("first\n", use_inner_text=False)
        await expect(step.locator("h2")).to_have_text("coder is running Python")
        run.pauses[0].set()
        await expect(step.locator(".output pre")).to_have_text("first\nsecond <b>\n", use_inner_text=False)
        assert await reading_problems(page) == []
        run.pauses[1].set()
        await expect(page.locator("article.running")).to_have_count(0)
        await expect(page.locator(".status")).to_have_text("completed")
        await expect(page.locator("article.kind-block").last).to_contain_text("final_answer")
        await expect(page.locator("article.kind-end")).to_be_in_viewport()


async def test_call_is_asked_for_on_the_page_and_approved(page, tmp_path):
    code = python(f"print(send_mail(to='boss', subject={SUBJECT!r}))")
    async with live(page, tmp_path, code, "Done.") as (run, _):
        question = page.get_by_role("region", name="Questions")
        await expect(question).to_contain_text("asks to call send_mail")
        await expect(question.locator("pre")).to_contain_text("<img src=x onerror=alert(1)> for \\u202eyou")
        assert await reading_problems(page) == []
        await question.get_by_role("button", name="Approve").click()
        await expect(question).to_be_hidden()
        await expect(page.locator("article.kind-block .output, article.kind-block .value")).to_contain_text("sent")
    assert run.sent == [("boss", SUBJECT)]


async def test_click_right_after_a_question_appeared_answers_nothing(own_page, tmp_path):
    # Clicks each button of a question as soon as it is in the page, and once more when it can be seen.
    page = own_page
    await page.add_init_script("""
        let clicks = 0;
        new MutationObserver(() => {
            for (const button of document.querySelectorAll('.questions .approve:not([data-clicked])')) {
                button.dataset.clicked = 'yes';
                button.click();
                requestAnimationFrame(() => requestAnimationFrame(() => {
                    button.click();
                    document.documentElement.dataset.clicks = ++clicks;
                }));
            }
        }).observe(document, {subtree: true, childList: true});
    """)
    code = python("for to in ('a', 'b'):\n    try:\n        send_mail(to=to, subject='x')\n    except Exception: pass")
    async with live(page, tmp_path, code, "Done.") as (run, _):
        question = page.locator(".questions")
        await expect(question.locator("pre")).to_contain_text('"a"')
        await expect(page.locator("html")).to_have_attribute("data-clicks", "1")
        assert [asked["tool"] for asked in run.control.questions] == ["send_mail"]
        await question.get_by_role("button", name="Deny").click()
        await expect(question.locator("pre")).to_contain_text('"b"')
        await expect(page.locator("html")).to_have_attribute("data-clicks", "2")
        assert [asked["tool"] for asked in run.control.questions] == ["send_mail"]
        await question.get_by_role("button", name="Approve").click()
        await expect(question).to_be_hidden()
        await expect(page.locator(".status")).to_have_text("completed")
    assert run.sent == [("b", "x")]


async def test_question_goes_when_the_connection_is_lost(page, tmp_path):
    write_log(tmp_path / "run", lines(whole_run()))
    question = {"id": 1, "agent": "a", "kind": "code", "text": "1", "tool": None}
    async with serve(tmp_path) as address:
        header = (await (await page.request.get(f"{address}api/runs/run")).json()) | {
            "live": True,
            "outcome": "running",
        }
        await page.route("**/api/runs/run", lambda route: route.fulfill(json=header))
        changes = {"header": header, "summaries": [], "questions": [question]}
        await page.route("**/changes?*", lambda route: route.fulfill(json=changes))
        await page.goto(f"{address}runs/run")
        await expect(page.locator("#announcements")).to_have_text("Question: may this code run?")
        await expect(page.locator(".questions")).to_be_visible()
        await page.route("**/changes?*", lambda route: route.abort())
        await expect(page.locator(".pill")).to_have_text("Connection lost, trying again…")
        await expect(page.locator(".questions")).to_be_hidden()


async def test_stop_button_ends_the_run(page, tmp_path):
    async with live(page, tmp_path, python("print('begin', flush=True)\nimport time\ntime.sleep(60)")) as (run, task):
        await expect(page.locator(".output pre")).to_contain_text("begin")
        await page.get_by_role("button", name="Stop").click()
        await asyncio.wait([task], timeout=30)
        assert task.done()
        await expect(page.locator(".status")).to_have_text("cancelled")
    assert run.control.stopped


async def test_reader_at_the_end_stays_at_the_end_while_output_grows(page, tmp_path):
    rows = "for i in range(60): print('row', i)"
    answer = python(f"{rows}\npause(number=0)\n{rows}\nprint('last row')\npause(number=1)")
    async with live(page, tmp_path, answer, "Done.") as (run, _):
        output = page.locator("article.running .output")
        await expect(output).to_contain_text("row 59")
        await expect(page.locator(".pill")).to_be_hidden()
        run.pauses[0].set()
        await expect(output).to_contain_text("last row")
        await until(page, END_IS_SEEN)
        await expect(page.locator(".pill")).to_be_hidden()
        await page.keyboard.press("g")
        await expect(page.locator(".pill")).to_have_text("Follow ↓")
        await page.locator(".pill").click()
        await until(page, END_IS_SEEN)
        run.pauses[1].set()
        await expect(page.locator("article.kind-end")).to_be_in_viewport()

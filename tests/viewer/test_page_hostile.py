"""A run whose every text tries to run a script, load something or look like something else, in the viewer's page."""

import asyncio
import base64
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from playwright.async_api import expect

from autogen_codeact.runs.events import (
    AgentInfo,
    BlockFinished,
    BlockStarted,
    CodeText,
    HostCallFinished,
    HostCallStarted,
    MessageLogged,
    ModelCallFinished,
    RunFinished,
)
from autogen_codeact.runs.results import ArtifactRecord, CallRecord, DisplayRecord, ResultRecord
from autogen_codeact.viewer import serve
from codeact_sandbox.types.result import ErrorInfo, NetworkConnection
from tests.runs.logs import lines, started, text, write_log

from .runs import block
from .watching import Watched, listening, reading_problems

pytestmark = pytest.mark.asyncio(loop_scope="module")


def attacks(port: int) -> str:
    """Return text that does harm where it is not escaped."""
    there = f"http://localhost:{port}"
    return (
        f"<script>globalThis.harm='script';fetch('{there}/script')</script>"
        "<img src=x onerror=\"globalThis.harm='img'\"><svg onload=\"globalThis.harm='svg'\"></svg>"
        f"<iframe src='{there}/frame'></iframe><link rel=preconnect href='{there}'>"
        "</pre></script></style></textarea></title>--><b id=injected>"
        f" [link](javascript:globalThis.harm=1) ![image]({there}/image) [data](data:text/html,<script>alert(1)</script>)"
        " \x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \u202egnp.exe\u202c \u2066x\u2069 \u200bzero\ufeff \x00 {{7*7}} ${alert(1)}"
    )


def page_of(port: int) -> str:
    """Return an HTML document that would load and run all kinds of things."""
    there = f"http://localhost:{port}"
    return (
        f"<base href='{there}/'><meta http-equiv=refresh content='0;url={there}/refresh'>"
        f"<link rel=preconnect href='{there}'><link rel=stylesheet href='{there}/sheet'><link rel=dns-prefetch href='{there}'>"
        f"<style>@import url({there}/import); body {{ background: url({there}/background); }}</style>"
        "<style>td { color: rgb(1, 2, 3); }</style>"
        f"<script>parent.harm = 'frame'; fetch('{there}/fetch')</script><script src='{there}/script'></script>"
        f"<img src='{there}/image' srcset='{there}/set 2x' onerror='parent.harm=1'><video src='{there}/video' autoplay></video>"
        f"<object data='{there}/object'></object><embed src='{there}/embed'><iframe src='{there}/frame'></iframe>"
        f"<form action='{there}/form'><input name=a autofocus onfocus='parent.harm=2'></form>"
        f"<a href='{there}/link' target=_top>a link</a><a href='javascript:parent.harm=3'>another</a>"
        f"<svg><image href='{there}/image'/><use href='{there}/use#a'/><script>parent.harm=4</script></svg>"
        "<table><tr><td style='font-weight: 700'>the table</td></tr></table>"
        "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=parent.harm=5&gt;'>"
    )


def hostile_events(port: int):
    """Return the events of the run."""
    evil, html = attacks(port), page_of(port)
    svg = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 9 9' onload='parent.harm=6'>{html}<circle r='4'/></svg>"
    )
    begin = started(evil).model_copy(
        update={"name": evil, "agents": [AgentInfo(name=evil, kind=evil, description=evil, executor=None, model=evil)]}
    )
    error = ErrorInfo(type=evil, message=evil)
    calls = [
        CallRecord(name=evil, arguments={evil: evil, "x": {"a": evil}}, outcome="ok", result=evil),
        CallRecord(name="tool", arguments={}, outcome="error", error=error),
    ]
    displays = [
        DisplayRecord(name=evil, data={"text/html": html, "text/plain": evil}),
        DisplayRecord(name="svg", data={"image/svg+xml": svg, "text/plain": evil}),
        DisplayRecord(name="markdown", data={"text/markdown": evil + "\n\n# head\n\n" + evil}),
        DisplayRecord(name="json", data={"application/json": {"a": evil}}),
        DisplayRecord(name="script only", data={"text/html": "<script>parent.harm=7</script>", "text/plain": evil}),
    ]
    result = ResultRecord(
        kind="sandbox",
        exit_code=1,
        output=evil + "\n" + "x" * 50_000 + "\n" + evil,
        outcome="error",
        value_repr=evil,
        error=error,
        tool_calls=calls,
        displays=displays,
        connections=[NetworkConnection(host=evil, port=1, allowed=False, sent=0, received=0, reason=evil)],
        artifacts=[ArtifactRecord(name=evil, size=9, media_type=evil, note=evil)],
        notes=[evil],
        state="lost",
    )
    answer = {
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
        "content": evil,
        "thought": evil,
    }
    decision = {
        "type": "CodeGenerationEvent",
        "source": "coder",
        "retry_attempt": 0,
        "content": evil,
        "code_blocks": [{"code": evil, "language": evil}],
        "metadata": {},
    }
    handoff = {"type": "HandoffMessage", "source": evil, "target": evil, "content": evil, "context": [], "metadata": {}}
    return [
        begin,
        text(evil, "user"),
        text(evil, evil),
        text(f"# {evil}\n\n- {evil}\n\n> {evil}\n\n| {evil} |\n| --- |\n| {evil} |\n\n```\n{evil}\n```\n", "coder"),
        ModelCallFinished(agent="coder", number=1, result=answer),
        MessageLogged(message=decision),
        BlockStarted(agent="coder", number=1, blocks=[CodeText(code=f"print('''{evil}''')", language="python")]),
        HostCallStarted(agent="coder", block=1, call=1, name=evil, arguments={evil: evil}, idempotent=False),
        HostCallFinished(agent="coder", block=1, call=1, record=calls[0]),
        BlockFinished(agent="coder", number=1, result=result),
        ModelCallFinished(agent="coder", number=2, error=error),
        MessageLogged(message=handoff),
        RunFinished(outcome="failed", stop_reason=evil, error=error),
    ]


@pytest_asyncio.fixture(loop_scope="module")
async def hostile(page, tmp_path):
    """The page of the run, everything that was received at the port it names, and what was watched."""
    async with listening() as (port, received):
        content = lines(hostile_events(port))
        write_log(tmp_path / "hostile", [*content[:4], b'{"damaged": "<script>alert(1)</script>\n', *content[4:]])
        async with serve(tmp_path) as address:
            watched = Watched(page, address)
            yield page, address, watched, received


async def steps_of(page, address):
    """Wait until the log is read to its end, and return the number of its steps."""
    async with asyncio.timeout(30):
        while not (header := await (await page.request.get(f"{address}api/runs/hostile")).json())["indexed"]:  # noqa: ASYNC110 - asks the server
            await asyncio.sleep(0.05)
    await expect(page.locator(".facts")).to_contain_text(f"{header['steps']} steps")
    return header["steps"]


NOTHING_DONE = """() => {
    const all = [...document.querySelectorAll('body *')];
    const attributes = all.flatMap((element) => [...element.attributes]).filter(({name}) => name !== 'srcdoc');
    const ours = /^(#|\\/|http:\\/\\/127\\.0\\.0\\.1|http:\\/\\/localhost)/;
    const invisible = /[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u200b\\u202a-\\u202e\\u2066-\\u2069\\ufeff]/;
    const texts = [document.body.innerText, document.title, ...attributes.map(({value}) => value)];
    const elements = '#injected, body script, body link, body style, embed, object, svg [href]';
    return {
        harm: globalThis.harm ?? null,
        injected: document.querySelectorAll(elements).length,
        handlers: attributes.filter(({name}) => name.startsWith('on')).length,
        addresses: attributes.filter(({name}) => name === 'href' || name === 'src').map(({value}) => value)
            .filter((value) => !ours.test(value)),
        hidden: texts.filter((text) => invisible.test(text)),
        frames: [...document.querySelectorAll('iframe')].map((frame) => frame.getAttribute('sandbox')),
    };
}"""
NOTHING = {"harm": None, "injected": 0, "handlers": 0, "addresses": [], "hidden": []}


async def open_everything(page):
    """Open what can be opened in the steps on the page."""
    await page.evaluate("""() => {
        for (const details of document.querySelectorAll('details')) details.open = true;
        for (const more of document.querySelectorAll('button.more')) more.click();
    }""")


async def show(page, number):
    """Show a step, and return it."""
    await page.evaluate("number => { location.hash = `#step-${number}`; }", number)
    step = page.locator(f"#step-{number}:not(.placeholder)")
    await expect(step).to_be_visible()
    return step


async def show_block(page, address):
    """Show the step with the block."""
    summaries = await (await page.request.get(f"{address}api/runs/hostile/summaries?from=1&to=100")).json()
    (number,) = (each["number"] for each in summaries if each["kind"] == "block")
    return await show(page, number)


async def test_run_full_of_attacks_is_shown_as_text_and_does_nothing(hostile):
    page, address, watched, received = hostile
    await page.goto(f"{address}runs/hostile")
    await expect(page.locator("#step-1:not(.placeholder)")).to_be_visible()
    frames = 0
    for number in range(1, await steps_of(page, address) + 1):
        await show(page, number)
        await open_everything(page)
        state = await page.evaluate(NOTHING_DONE)
        frames = max(frames, len(state["frames"]))
        assert set(state.pop("frames")) <= {""}
        assert state == NOTHING, number
    assert frames == 2

    block = await show_block(page, address)
    await expect(page.locator(".overview")).to_contain_text("<script>globalThis.harm='script'")
    await expect(block.locator(".output").first).to_contain_text("\\x1b]0;title\\x07")
    await expect(block.locator(".output").first).to_contain_text("\\u202egnp.exe")
    await expect(page.locator("article.kind-gap")).to_have_count(1)
    assert watched.dialogs == []
    assert [url for url in watched.requests if not url.startswith("about:")] == []
    assert received == []
    # The policy of the page never had to stop anything: nothing was tried.
    assert watched.messages == []


async def test_html_in_its_frame_keeps_its_text_and_styles_but_nothing_that_runs_or_loads(hostile):
    page, address, watched, received = hostile
    await page.goto(f"{address}runs/hostile")
    frame = (await show_block(page, address)).locator("iframe").first
    await frame.scroll_into_view_if_needed()
    inside = frame.content_frame

    cell = inside.locator("td").first
    await expect(cell).to_have_text("the table")
    await expect(cell).to_have_css("color", "rgb(1, 2, 3)")
    await expect(cell).to_have_css("font-weight", "700")
    left = inside.locator(
        "script, link, base, iframe, object, embed, form, input, video, meta[http-equiv=refresh], [src], [onerror], [onload]"
    )
    await expect(left).to_have_count(0)
    assert await inside.locator("a[href], image[href], use[href]").count() == 0
    await inside.get_by_text("a link").click()
    await expect(cell).to_have_text("the table")
    assert await page.evaluate("globalThis.harm ?? null") is None
    assert (watched.dialogs, received) == ([], [])


async def test_list_with_a_hostile_run_shows_text(hostile):
    page, address, watched, received = hostile
    await page.goto(address)
    await expect(page.locator(".runs li")).to_contain_text("<script>globalThis.harm='script'")

    state = await page.evaluate(NOTHING_DONE)
    assert state.pop("frames") == []
    assert state == NOTHING
    assert await reading_problems(page) == []
    assert (watched.requests, watched.messages, watched.dialogs, received) == ([], [], [], [])


READ_AGAIN = {
    "xmp": "<math><mtext><table><mglyph><xmp><!--</xmp><xmp>--></math>{}</xmp>",
    "noembed": "<math><mtext><table><mglyph><noembed><!--</noembed><noembed>--></math>{}</noembed>",
    "noframes": "<math><mtext><table><mglyph><noframes><!--</noframes><noframes>--></math>{}</noframes>",
}


@asynccontextmanager
async def displaying(page, folder, *pages):
    """Show a block that has displayed HTML; nothing in it may load, run or be complained of."""
    displays = [DisplayRecord(name="d", data={"text/html": each, "text/plain": "d"}) for each in pages]
    write_log(folder / "run", lines([started("t"), *block(displays=displays), RunFinished(outcome="completed")]))
    async with serve(folder) as address:
        watched = Watched(page, address)
        await page.goto(f"{address}runs/run#step-2")
        yield page.locator("#step-2 iframe")
    assert (watched.messages, watched.requests, watched.dialogs) == ([], [], [])


async def test_html_that_becomes_other_elements_when_it_is_read_again_loads_nothing(page, tmp_path):
    # The title keeps the page from seeing these tags before the text is parsed.
    loads = "<link title='<' rel=preconnect href='{0}'><meta title='<' http-equiv=refresh content='0;url={0}'>"
    async with listening() as (port, received):
        tags = loads.format(f"http://localhost:{port}/")
        pages = [f"<p>{name}</p>{html.format(tags)}" for name, html in READ_AGAIN.items()]
        async with displaying(page, tmp_path, *pages) as frames:
            for number, name in enumerate(READ_AGAIN):
                await frames.nth(number).scroll_into_view_if_needed()
                inside = frames.nth(number).content_frame
                await expect(inside.locator("p")).to_have_text(name)
                assert await inside.locator("link, meta[http-equiv=refresh]").count() == 0
    assert received == []


async def test_preformatted_html_and_images_that_are_none_are_shown_and_do_nothing(page, tmp_path):
    data = base64.b64encode(b"<script>parent.harm=1</script>").decode()
    # Reading it again takes off an empty line each time.
    pages = ["<pre>\n\n\nwords</pre>", f"<p>see</p><img src='data:image/png;base64,{data}'>"]
    async with displaying(page, tmp_path, *pages) as frames:
        await expect(frames.nth(0).content_frame.locator("pre")).to_have_text("words")
        await expect(frames.nth(1).content_frame.locator("p")).to_have_text("see")
        await expect(frames.nth(1).content_frame.locator("img")).to_have_count(1)
        assert await page.evaluate("globalThis.harm ?? null") is None

"""How the page shows text that hides something, or that is made to be slow, in a browser."""

import pytest

from autogen_codeact.sandbox.types.filenames import printable_text
from autogen_codeact.viewer.static import PAGE

from ..abuse.test_k_invisible import IGNORABLE, LEGITIMATE

pytestmark = pytest.mark.asyncio(loop_scope="module")
ADDRESS = "http://viewer.test/"


async def with_modules(page):
    """Open a page that can import the modules of ours."""

    async def answer(route):
        name = route.request.url.removeprefix(ADDRESS)
        kind = "text/javascript" if name else "text/html"
        await route.fulfill(content_type=kind, body=(PAGE / name).read_text() if name else "<p>")

    await page.route(f"{ADDRESS}**", answer)
    await page.goto(ADDRESS)
    return page


async def test_every_invisible_character_is_an_escape_in_the_page(own_page):
    page = await with_modules(own_page)
    texts = [*(f"rm{each} x{each}{each}" for each in IGNORABLE), *LEGITIMATE]
    shown = await page.evaluate(
        "async texts => { const { plain } = await import('/dom.js'); return texts.map(plain); }", texts
    )
    assert shown == list(map(printable_text, texts))


async def test_no_text_is_slow_to_render(own_page):
    page = await with_modules(own_page)
    seeds = [
        *(
            "`",
            "````a",
            "`a ````",
            "[a](",
            "![",
            "**a",
            "*a **b ",
            "_a",
            "~~a",
            "> ",
            "- ",
            "- a\n",
            "|",
            "a|b\n|-|-\n|c|d\n",
        ),
        *(
            "\n",
            "a\n",
            "http://",
            "\\",
            "```\n",
            "`a`",
            "*a* ",
            "[a](http://b) ",
            "\x1b[",
            "\x1b[1;",
            "\x01",
            "\u200b",
            "\r",
        ),
    ]
    nested = [f"{'[' * depth}{'1,' * 90_000}1{']' * depth}" for depth in (2, 60, 2_000, 5_000)]
    found = await page.evaluate(
        """async ([seeds, nested, size]) => {
          const { markdown } = await import('/markdown.js');
          const { visible } = await import('/dom.js');
          const { longText } = await import('/text.js');
          const { prettyJson } = await import('/frames.js');
          const ms = (face, text) => {
            const begin = performance.now();
            face(text);
            return performance.now() - begin;
          };
          const best = (face, text) => Math.min(ms(face, text), ms(face, text), ms(face, text));
          const found = [];
          const ordinary = 'Some *text* with `code` and [a link](http://x.y/z).\\n\\n- one\\n- two\\n\\n'.repeat(size);
          const control = best(markdown, ordinary.slice(0, size)) + 0.5;
          for (const face of [markdown, visible, longText]) {
            for (const seed of seeds) {
              for (const width of [200, 1_900, size]) {
                const line = seed.repeat(width).slice(0, width) + '\\n\\n';
                const took = best(face, line.repeat(size / width).slice(0, size)) / control;
                if (took > 25) found.push([face.name, seed, width, took]);
              }
            }
          }
          const flat = best(prettyJson, nested[0]) + 0.5;
          for (const text of nested) {
            const took = best(prettyJson, text) / flat;
            if (took > 10) found.push(['prettyJson', text.length, took]);
          }
          return found;
        }""",
        [seeds, nested, 20_000],
    )
    assert found == []

"""How the page shows text that hides something, or that is made to be slow, in a browser."""

import pytest

from autogen_codeact.viewer.static import PAGE
from codeact_sandbox.types.filenames import printable_text

from ..abuse.test_k_invisible import IGNORABLE, LEGITIMATE

pytestmark = pytest.mark.asyncio(loop_scope="module")


MARKS = "` ````a [a]( ![ **a _a ~~a | http:// \\ `a` \x1b[ \x1b[1; \x01 \u200b \r"
LINES = "`a ````!*a **b !> !- !- a\n!\n!a\n!```\n!*a* ![a](http://b) "


async def with_script(page):
    """Open a page with our functions."""
    await page.goto("about:blank")
    for name in ("dom", "text", "markdown", "frames"):
        await page.add_script_tag(path=PAGE / f"{name}.js")
    return page


async def test_every_invisible_character_is_an_escape_in_the_page(own_page):
    page = await with_script(own_page)
    texts = [*(f"rm{each} x{each}{each}" for each in IGNORABLE), *LEGITIMATE]
    shown = await page.evaluate("texts => texts.map(plain)", texts)
    assert shown == list(map(printable_text, texts))


async def test_no_text_is_slow_to_render(own_page):
    page = await with_script(own_page)
    seeds = [*MARKS.split(" "), *LINES.split("!"), "a|b\n|-|-\n|c|d\n"]
    nested = [f"{'[' * depth}{'1,' * 90_000}1{']' * depth}" for depth in (2, 60, 2_000, 5_000)]
    found = await page.evaluate(
        """async ([seeds, nested, size]) => {
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

"""The modules of the viewer's page joined into one script."""

import re
from importlib.resources import files

import pytest

from autogen_codeact.viewer.bundle import BundleError, bundle, one_page

PAGE = files("autogen_codeact.viewer") / "page"


def joined(**modules):
    return bundle("app.js", {f"{name}.js": text for name, text in modules.items()}.__getitem__)


def test_modules_become_functions_in_the_order_of_their_imports():
    script = joined(
        app='import { a, b as other } from "./one.js";\nimport "./two.js";\nexport const c = a + other;\n',
        one='import {\n  d,\n} from "./two.js";\nexport function a() {}\nconst inside = d;\nexport { inside as b };\n',
        two="export class d {}\nexport async function e() {}\nexport function* f() {}\n",
    )
    assert script == (
        "\nconst module_two = (() => {\nclass d {}\nasync function e() {}\nfunction* f() {}\n\nreturn { d, e, f };\n})();\n"
        "const module_one = (() => {\nconst { d } = module_two;\nfunction a() {}\nconst inside = d;\n\n\n"
        "return { a, b: inside };\n})();\n"
        "const module_app = (() => {\nconst { a, b: other } = module_one;\n\nconst c = a + other;\n\nreturn { c };\n})();\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        'import one from "./one.js";',
        'import * as one from "./one.js";',
        'import { a } from "https://example.com/one.js";',
        'const one = await import("./one.js");',
        "const here = import.meta.url;",
        "export default 1;",
        "export let a = 1;",
        'export { a } from "./one.js";',
        "await start();",
    ],
)
def test_other_forms_of_import_and_export_are_refused(line):
    with pytest.raises(BundleError, match=r"^app\.js has a line that can't be joined with other modules: ") as raised:
        joined(app=f"const x = 1;\n{line}\n", one="export const a = 1;\n")
    assert line.endswith(str(raised.value).partition("modules: ")[2])


def test_a_cycle_is_refused():
    with pytest.raises(BundleError, match=re.escape("The modules app.js, one.js import each other in a cycle.")):
        joined(app='import "./one.js";', one='import "./app.js";')


@pytest.mark.parametrize("text", ["</SCRIPT>", "<!--"])
def test_text_that_would_end_the_script_is_refused(text):
    with pytest.raises(BundleError, match="which would end its element"):
        joined(app=f"const a = '{text}';")


def test_the_data_of_the_page_have_the_same_names_inline():
    """Both sources of data export the same names, so that the page can use either."""
    exported = re.compile(r"^export (?:async )?function (\w+)", re.MULTILINE)
    served, inline = (exported.findall((PAGE / name).read_text()) for name in ("data.js", "data_inline.js"))
    assert sorted(served) == sorted(inline)


def test_the_page_loads_nothing_but_its_own_script():
    shell = one_page()
    page = shell.head + shell.tail
    assert re.findall(r"<script[^>]*>", page) == ['<script type="module">']
    assert re.findall(r"<link rel=\"\w+\" href=\"[^:]*:", page) == ['<link rel="icon" href="data:']
    assert "__BASE__" not in page
    assert "fetch(" not in page
    assert "default-src 'none'; script-src 'sha256-" in shell.head.split("<style>")[0]
    assert len(page) < 300_000

"""Project pages are read from HTML, and written again with our own links."""

from codeact_sandbox.packages.pages import ProjectFile, belongs_to, canonical_name, parse_page, write_html

BASE = "https://index.example/simple/one/"
SHA = "b" * 64
FILES = [
    ProjectFile(
        "one-1.0-py3-none-any.whl", "https://files.example/a/one-1.0-py3-none-any.whl", BASE,
        {"sha256": SHA}, ">=3.8,<4", "it \"breaks\" <things>", {"sha256": "c" * 64},
    ),
    ProjectFile("one-2.0.tar.gz", "https://index.example/files/one-2.0.tar.gz", BASE, {}, None, True, {}),
    ProjectFile("one-3.0.zip", "https://index.example/simple/one/one-3.0.zip", BASE),
]  # fmt: skip
HTML = f"""<!DOCTYPE html><html><head><meta name="pypi:repository-version" content="1.1"></head><body>
<a href="https://files.example/a/one-1.0-py3-none-any.whl#sha256={SHA}" data-requires-python="&gt;=3.8,&lt;4"
   data-yanked="it &quot;breaks&quot; &lt;things&gt;" data-core-metadata="sha256={"c" * 64}">whatever</a>
<a href="/files/one-2.0.tar.gz" data-yanked data-dist-info-metadata="true">one-2.0.tar.gz</a>
<a href=" one-3.0.zip ">three</a> <a>no link</a> <a href="../two/">two</a> <a href="https://[/one-4.0.zip">bad</a>
<a href="https://x:99999/one-5.0.zip">bad</a> <a href="one%2f..%2f6.0.zip">bad</a> <a href="one%0d-7.0.zip">bad</a>
"""


def test_a_page_in_html() -> None:
    assert parse_page(HTML.encode(), BASE) == FILES


def test_what_is_written_says_the_same_with_our_links() -> None:
    again = parse_page(write_html("one", FILES), "http://127.0.0.1:1/simple/one/")
    links = [f"http://127.0.0.1:1/files/one/{file.filename}" for file in FILES]
    base = "http://127.0.0.1:1/simple/one/"
    assert again == [
        ProjectFile(file.filename, url, base, file.hashes, file.requires_python, file.yanked, file.metadata)
        for file, url in zip(FILES, links, strict=True)
    ]


def test_names_of_projects() -> None:
    assert canonical_name("Zope._Interface") == "zope-interface"
    for wrong in ("", "-x", "x-", "a/b", "..", "a b", "a\n", "ä", "%2e%2e", "x" * 129):
        assert canonical_name(wrong) is None


def test_files_of_a_folder_belong_to_projects() -> None:
    assert belongs_to("Zope_Interface-5.0-py3-none-any.whl", "zope-interface")
    assert belongs_to("zope.interface-5.0.tar.gz", "zope-interface")
    assert not belongs_to("zope-interface-extra-5.0.tar.gz", "zope-interface")
    assert not belongs_to("zope-5.0.tar.gz", "zope-interface")

"""K. What was typed, or pasted, before a question of a chat was shown is no answer to it."""

import pytest

from autogen_codeact.cli.transcript import _kept
from codeact_sandbox.types.displays import Display
from tests.cli.chat_terminal import Chat
from tests.cli.support import code, replay

pytestmark = pytest.mark.timeout(180)


@pytest.mark.usefixtures("bubblewrap")
def test_k_keys_before_a_question_do_not_approve_code(tmp_path):
    """They come with the message itself, as from a paste, so that a program has them before the question."""
    for variables, prompt, enter in (({}, "\x1b[0m> ", "\r"), ({"TERM": "dumb"}, "> ", "\n")):
        name = variables.get("TERM", "editor")
        (tmp_path / name).mkdir()
        model = replay(tmp_path / name, code("print('r' + 'an')"), "Not done.", "Not done.", "Not done.")
        options = ["--model", model, "--sandbox", "bubblewrap", "--approve"]
        with Chat(*options, state=tmp_path / name, env=variables, prompt=prompt) as chat:
            chat.until_prompt()
            chat.send(f"go{enter}y{enter}a{enter}")
            chat.until("what to do instead: ")
            chat.send(f"n{enter}")
            written = chat.until("Not done.")
            assert "not approved" in written, name
            assert "ran" not in written, name


def test_k_figures_are_written_into_their_folder_only(tmp_path):
    folder, outside = tmp_path / "figures", tmp_path / "outside"
    outside.write_text("mine")
    folder.mkdir()
    (folder / "link.png").symlink_to(outside)
    for name in (
        "../outside",
        "/etc/evil.png",
        "a/../../outside",
        "link.png",
        "\x1b]0;x\x07.png",
        ".git",
        "..",
        "",
        "\u202egnp.png",
    ):
        path = _kept(folder, Display(name, {"image/png": b"image"}))
        assert path is not None, name
        assert path.parent == folder, name
        assert path.name.isprintable(), name
        assert path.read_bytes() == b"image", name
    assert outside.read_text() == "mine"
    assert sorted(tmp_path.iterdir()) == [folder, outside]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "of a checkout").symlink_to("elsewhere")
    assert _kept(tmp_path / "of a checkout", Display("figure.png", {"image/png": b"image"})) is None
    assert not list((tmp_path / "elsewhere").iterdir())

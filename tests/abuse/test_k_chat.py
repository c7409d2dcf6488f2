"""K. What was typed, or pasted, before a question of a chat was shown is no answer to it."""

import pytest

from tests.cli.chat_terminal import PROMPT, Chat
from tests.cli.support import code, replay

pytestmark = pytest.mark.timeout(180)


@pytest.mark.usefixtures("bubblewrap")
def test_k_keys_before_a_question_do_not_approve_code(tmp_path):
    """They come with the message itself, as from a paste, so that a program has them before the question."""
    for variables, prompt, enter in (({}, PROMPT, "\r"), ({"TERM": "dumb"}, "> ", "\n")):
        name = variables.get("TERM", "editor")
        (tmp_path / name).mkdir()
        model = replay(tmp_path / name, code("print('r' + 'an')"), "Not done.", "Not done.", "Not done.")
        options = ["--model", model, "--sandbox", "bubblewrap", "--approve"]
        with Chat(*options, state=tmp_path / name, env=variables, prompt=prompt) as chat:
            chat.until_prompt()
            chat.send(f"go{enter}y{enter}a{enter}")
            chat.until("what to do instead:")
            chat.send(f"n{enter}")
            written = chat.until("Not done.")
            assert "not approved" in written, name
            assert "ran" not in written, name

"""`codeact resume`."""

import pytest

from tests.cli.support import code, codeact
from tests.openai_server import OpenAIServer, Reply


@pytest.mark.usefixtures("bubblewrap")
def test_a_run_that_failed_is_continued_with_what_it_had(tmp_path):
    folder = tmp_path / "run"
    replies = [code("x = 6"), Reply("out of order", status=400), code("final_answer(x * 7)")]
    server = OpenAIServer([replies[0], replies[1], replies[2]]).start()
    key = {"OPENAI_API_KEY": "sk-not-a-key-at-all"}
    model = ["--model", "gpt-4o", "--base-url", server.base_url, "--sandbox", "bubblewrap"]
    try:
        failed = codeact("run", "--act", "What is 6*7?", *model, "--save", folder, env=key)
        done = codeact("resume", folder, "--json", env=key)
        again = codeact("resume", folder, env=key)
    finally:
        server.stop()
    assert failed.status == 2
    assert "out of order" in failed.err
    assert done.status == 0
    assert done.err.startswith("codeact: rebuilding the session: 1 block, about ")
    assert [each["type"] for each in done.objects] == [
        "CodeGenerationEvent",
        "CodeExecutionEvent",
        "TextMessage",
        "TaskResult",
    ]
    assert done.objects[2]["content"] == "42"
    assert (again.status, again.out) == (2, "")
    assert again.err == f"codeact: {folder} is finished: there is nothing to continue. `codeact show` prints it.\n"

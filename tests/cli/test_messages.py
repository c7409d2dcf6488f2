"""Messages of the command: in the words of its options, and why bubblewrap is used."""

import pytest

from autogen_codeact.cli import sandbox
from autogen_codeact.cli.output import in_options
from codeact_sandbox import SandboxUnavailable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("DockerCommandLineCodeExecutor(cpus=…): must be a number", "--option cpus: must be a number"),
        ("Sandbox(timeout=…): must be a number", "--timeout: must be a number"),
        ("data='/nowhere': there is no such file", "--data='/nowhere': there is no such file"),
        ("data= shows it, and bind_dir= mounts it", "--data shows it, and --option bind_dir= mounts it"),
        ("or with Docker pass `user=`", "or with Docker pass `--option user=`"),
        ("evil.example:80 is not in allow_domains", "evil.example:80 is not in --allow-domain"),
        ("The work_dir /a/work_dir/b can't be used", "The --work-dir /a/work_dir/b can't be used"),
        ("--budget cost=… needs it; --option memory=2g", "--budget cost=… needs it; --option memory=2g"),
        ("include=['.env'] sends it", "include=['.env'] sends it"),
    ],
)
def test_messages_have_the_words_of_the_command_line(text: str, shown: str) -> None:
    assert in_options(text) == shown


@pytest.mark.parametrize(
    ("error", "said"), [(PermissionError(13, "denied"), "No permission"), (OSError(), "no Docker")]
)
def test_missing_permission_is_not_a_missing_engine(error: OSError, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect() -> None:
        raise SandboxUnavailable("No permission to use the engine.") from error

    monkeypatch.setattr(sandbox, "connect", connect)
    assert said in sandbox._why_bubblewrap()

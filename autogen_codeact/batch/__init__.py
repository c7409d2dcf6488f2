"""Many tasks: run them at the same time, check the answers, keep everything, and go on after an interruption."""

from typing import TYPE_CHECKING

from codeact_sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.agents.budget import Prices as Prices
    from autogen_codeact.batch.errors import BatchBudgetError as BatchBudgetError
    from autogen_codeact.batch.errors import BatchError as BatchError
    from autogen_codeact.batch.ray import Ray as Ray
    from autogen_codeact.batch.running import run_batch as run_batch
    from autogen_codeact.batch.settings import BatchSettings as BatchSettings
    from autogen_codeact.batch.tasks import Check as Check
    from autogen_codeact.batch.tasks import Task as Task

# The modules import AutoGen.
_NAMES = {
    "autogen_codeact.batch.errors": "BatchBudgetError BatchError",
    "autogen_codeact.batch.ray": "Ray",
    "autogen_codeact.batch.running": "run_batch",
    "autogen_codeact.agents.budget": "Prices",
    "autogen_codeact.batch.settings": "BatchSettings",
    "autogen_codeact.batch.tasks": "Check Task",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)

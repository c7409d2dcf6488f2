"""The variants of `batch.py`: who runs the tasks, and in which environment."""

from dataclasses import dataclass, field

OURS, OURS_BUBBLEWRAP = "`run_batch`, Docker", "`run_batch`, bubblewrap"
AUTOGEN = "AutoGen, Docker command line"
SHARED = "AutoGen, one container for all tasks (no isolation)"
JUPYTER = "AutoGen, Docker Jupyter"
SMOLAGENTS = "smolagents, Docker"
ECHO = "bare echo, streams attached before"
ECHO_FRESH = "bare echo, a container for each task"
PEERS = (AUTOGEN, JUPYTER, SMOLAGENTS)


@dataclass(frozen=True)
class BatchVariant:
    """Runs tasks in a worker.

    Args:
        environment: Which one, of `environments.ENVIRONMENTS`.
        module: Has the probe.
        probe: Its name.
        arguments: Its arguments, in addition to the tasks and the concurrency.
    """

    environment: str
    module: str
    probe: str
    arguments: dict = field(default_factory=dict)


VARIANTS = {
    OURS: BatchVariant("own", "batch_ours", "batch, ours", {"sandbox": "docker"}),
    OURS_BUBBLEWRAP: BatchVariant("own", "batch_ours", "batch, ours", {"sandbox": "bubblewrap"}),
    AUTOGEN: BatchVariant("autogen", "batch_autogen", "batch, command line"),
    SHARED: BatchVariant("autogen", "batch_autogen", "batch, shared"),
    JUPYTER: BatchVariant("autogen", "batch_autogen", "batch, jupyter"),
    SMOLAGENTS: BatchVariant("smolagents", "batch_smolagents", "batch, docker"),
    ECHO: BatchVariant("own", "batch_echo", "batch, echo over attached streams"),
    ECHO_FRESH: BatchVariant("own", "batch_echo", "batch, echo, a container for each task"),
}

"""The variants of `batch.py`: who runs the tasks, and in which environment."""

from dataclasses import dataclass, field

OURS, OURS_BUBBLEWRAP = "`run_batch`, Docker", "`run_batch`, bubblewrap"
REUSED, REUSED_BUBBLEWRAP = f"{OURS}, sandboxes reused", f"{OURS_BUBBLEWRAP}, sandboxes reused"
SANDBOX_USES = 50
AUTOGEN = "AutoGen, Docker command line"
SHARED = "AutoGen, one container for all tasks (no isolation)"
JUPYTER = "AutoGen, Docker Jupyter"
SMOLAGENTS = "smolagents, Docker"
ECHO = "bare echo, streams attached before"
ECHO_FRESH = "bare echo, a container for each task"
PEERS = (AUTOGEN, JUPYTER, SMOLAGENTS)
RESET = "with a [reset](security.md#sandboxes-that-are-used-again) between two, whose success is checked"
# What the rows isolate from each other, for the page.
ISOLATION = {
    OURS: "a container for each task",
    OURS_BUBBLEWRAP: "a sandbox (namespaces) for each task",
    REUSED: f"a container for at most {SANDBOX_USES} tasks, one after the other, {RESET}",
    REUSED_BUBBLEWRAP: f"a sandbox for at most {SANDBOX_USES} tasks, one after the other, {RESET}",
    AUTOGEN: "a container for each task",
    SHARED: "nothing: tasks that run at the same time share files and processes",
    JUPYTER: "a container for each task",
    SMOLAGENTS: "a container for each task",
    ECHO_FRESH: "a container for each task, in which no code runs",
    ECHO: "nothing: a stream carries the bytes of one task after the other to the same `cat`",
}


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
    REUSED: BatchVariant("own", "batch_ours", "batch, ours", {"sandbox": "docker", "sandbox_uses": SANDBOX_USES}),
    REUSED_BUBBLEWRAP: BatchVariant(
        "own", "batch_ours", "batch, ours", {"sandbox": "bubblewrap", "sandbox_uses": SANDBOX_USES}
    ),
    AUTOGEN: BatchVariant("autogen", "batch_autogen", "batch, command line"),
    SHARED: BatchVariant("autogen", "batch_autogen", "batch, shared"),
    JUPYTER: BatchVariant("autogen", "batch_autogen", "batch, jupyter"),
    SMOLAGENTS: BatchVariant("smolagents", "batch_smolagents", "batch, docker"),
    ECHO: BatchVariant("own", "batch_echo", "batch, echo over attached streams"),
    ECHO_FRESH: BatchVariant("own", "batch_echo", "batch, echo, a container for each task"),
}

"""Starts a sandbox with GPUs. If the Docker engine has none, it prints the error.

python samples/gpu.py
"""

import asyncio
import json

from autogen_agentchat.messages import TextMessage
from autogen_agentchat.ui import Console
from docker.types import DeviceRequest

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor, SandboxStartError

CODE = """\
```sh
nvidia-smi --list-gpus
```
"""


async def main() -> None:
    # The same as `docker run --gpus all`. DeviceRequest(device_ids=["0"], …) requests one of them.
    all_gpus = DeviceRequest(count=-1, capabilities=[["gpu"]])
    executor = DockerCommandLineCodeExecutor(device_requests=[all_gpus])
    print("In a configuration, the request is:")
    print(json.dumps({"device_requests": executor.dump_component().config["device_requests"]}), "\n")

    print("Starting a sandbox with every GPU of the engine ...")
    try:
        await executor.start()
    except SandboxStartError as error:
        if "device_requests" not in str(error):
            raise
        print(f"SandboxStartError: {error}\n")
        print("This engine has no GPU. It needs an NVIDIA GPU, its driver and the NVIDIA Container Toolkit.")
        print("No sandbox without a GPU was started instead.")
        return
    try:
        agent = CodeExecutorAgent("runner", executor)
        await Console(agent.run_stream(task=TextMessage(content=CODE, source="user")))
    finally:
        await executor.stop()


if __name__ == "__main__":
    asyncio.run(main())

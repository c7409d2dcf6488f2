"""Three answers to one task, each run in a branch of one session: the best one is kept, the others leave no trace.

python samples/codeact_branches.py                 a recorded model, no key needed
python samples/codeact_branches.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio

from autogen_core.models import UserMessage
from models import model_for

from autogen_codeact.agents.extraction import extract_code_blocks
from codeact_sandbox import AsyncSandbox

TASK = "Python has `xs` and `ys`. Write a function `predict(x)` in a ```python block: a line that fits them well."
DATA = "xs, ys = [1, 2, 3, 4, 5], [3.1, 4.9, 7.2, 8.8, 11.1]"
ERROR = "sum((predict(x) - y) ** 2 for x, y in zip(xs, ys))"

RECORDING = [
    "```python\ndef predict(x):\n    return 3 * x\n```",
    "```python\ndef predict(x):\n    return sum(ys) / len(xs)\n```",
    "```python\nimport statistics\nline = statistics.linear_regression(xs, ys)\n"
    "def predict(x):\n    return line.intercept + line.slope * x\n```",
]


async def main() -> None:
    model, errors = model_for(RECORDING), {}
    async with AsyncSandbox() as box:
        await box.run(DATA)
        for _ in range(3):
            answer = await model.create([UserMessage(content=TASK, source="user")])
            code = "\n".join(block.code for block in extract_code_blocks(str(answer.content)))
            async with box.branch() as attempt:
                await attempt.run(code)
                result = await attempt.run(ERROR)
            if result.exit_code == 0:
                errors[code] = float(result.value_repr or "inf")
                print(f"Attempt {len(errors)} has an error of {errors[code]:.2f}.")
        await box.run(min(errors, key=lambda code: errors[code]))
        print("At 10 the best one predicts", (await box.run("round(predict(10), 2)")).value_repr)
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())

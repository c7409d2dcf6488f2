"""A team of three: a coder, a reviewer, and an executor that runs only the code that the reviewer sends.

python samples/reviewed_team.py                 recorded models, no key needed
python samples/reviewed_team.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio

from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.executors import DockerCommandLineCodeExecutor
from autogen_codeact.teams import coder_executor_team

TASK = "How many of the numbers below 1000 are palindromes in base 2 as well as in base 10?"

CODER = [
    """\
```python
def is_palindrome(text):
    return text == text[::-1]

found = [n for n in range(1000) if is_palindrome(str(n)) and is_palindrome(bin(n))]
print(len(found), found)
```
""",
    "11 of them, the largest is 717. TERMINATE",
]
REVIEWER = [
    """\
`bin` puts `0b` in front, so that no number would be one; I have taken that off.
```python
def is_palindrome(text):
    return text == text[::-1]

found = [n for n in range(1000) if is_palindrome(str(n)) and is_palindrome(f"{n:b}")]
print(len(found), found)
```
""",
]


async def main() -> None:
    coder, reviewer = model_for(CODER), model_for(REVIEWER)
    async with DockerCommandLineCodeExecutor() as executor:
        team = coder_executor_team(coder, executor, reviewer_model_client=reviewer)
        result = await Console(team.run_stream(task=TASK))
    print(f"\nIt ended because {result.stop_reason}")
    await coder.close()
    await reviewer.close()


if __name__ == "__main__":
    asyncio.run(main())

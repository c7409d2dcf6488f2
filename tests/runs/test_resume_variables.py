"""Variables of a session after a resume: they are what they were, or come from chance or time, and the model is told."""

from contextlib import aclosing

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.runs import recorded, resumed
from autogen_codeact.runs.resuming import MAY_DIFFER
from tests.agents.codeact import from_agent, python
from tests.agents.support import received_by, scripted

MADE = """
import collections, datetime, decimal, json as j, random, time, uuid
try:
    import numpy as np, pandas as pd
except ImportError:
    np = pd = None
number, real, text, data = 7, 0.1, "é", b"\\x00"
nested = {"a": [1, (2, 3)], "b": {"c": None}}
ordered = collections.OrderedDict(z=1, a=2)
exact = decimal.Decimal("0.10")
day = datetime.date(2026, 1, 1)
array = np.arange(6).reshape(2, 3) if np else [0]
frame = pd.DataFrame({"x": [1.5, 2.5], "y": ["a", None]}) if pd else {}
def double(x, by=[2]):
    by.append(x)
    return x * by[0]
class Point:
    def __init__(self, x):
        self.x = x
point = Point([number])
point.x.append(double(3))
squares = (n * n for n in range(9))
next(squares), next(squares)
file = open("notes.txt", "w+")
file.write("one two")
file.seek(4)
plus = lambda x: x + number
drawn = random.random()
began = time.time()
key = uuid.uuid4()
draws = []
draws.append(random.randint(1, 10**9))
derived = str(drawn)
random.seed(7)
"""
SEEN = """
{
    "number": number, "real": real, "text": text, "data": data, "nested": nested, "ordered": ordered, "exact": exact, "day": day,
    "array": getattr(array, "tolist", lambda: array)(), "dtype": str(getattr(array, "dtype", None)),
    "frame": frame.to_json() if pd else frame, "double": (double(5), double.__defaults__), "point": point.x,
    "squares": next(squares), "file": (file.tell(), file.read()), "plus": plus(1), "module": j.__name__,
    "random_state": random.getstate()[1][:5], "drawn": drawn, "began": began, "key": str(key), "draws": draws, "derived": derived,
}
"""
CHANCE = {"began", "derived", "drawn", "draws", "key"}


async def seen(executor):
    """The text of each variable, by name."""
    code = f"{{name: repr(value) for name, value in {SEEN.strip()}.items()}}"
    return (await executor.sandbox.run(code)).value


async def test_each_variable_is_what_it_was_or_comes_from_chance_or_time(bubblewrap: None, tmp_path):
    folder, work = tmp_path / "run", tmp_path / "work"
    work.mkdir()
    async with BubblewrapCommandLineCodeExecutor(mode="session", work_dir=work) as executor:
        agent = CodeActAgent("actor", executor, model_client=scripted(python(MADE), "unused"))
        async with aclosing(recorded(agent, task="Go.", path=folder)) as items:
            async for item in items:
                if type(item).__name__ == "CodeExecutionEvent":
                    break
        before = await seen(executor)
    async with BubblewrapCommandLineCodeExecutor(mode="session", work_dir=work) as executor:
        client = scripted("Done.")
        [_ async for _ in resumed(folder, agent=CodeActAgent("actor", executor, model_client=client))]
        after = await seen(executor)
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} == CHANCE
    assert received_by(client)[0][-1] == from_agent(MAY_DIFFER)

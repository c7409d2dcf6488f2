"""Data analysis in several steps of one run, with a typed answer.

python samples/codeact_sales.py                 a recorded model, no key needed
python samples/codeact_sales.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from autogen_agentchat.messages import StructuredMessage
from autogen_agentchat.ui import Console
from models import model_for
from pydantic import BaseModel

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor

SALES = """\
date,product,units,price
2025-03-03,kettle,3,24.50
2025-03-03,teapot,2,39.00
2025-03-04,kettle,1,24.50
2025-03-05,cup,12,4.25
2025-03-06,teapot,4,39.00
2025-03-07,cup,8,4.25
2025-03-07,kettle,2,22.00
2025-03-08,teapot,1,39.00
"""

TASK = """\
Analyse sales.csv: total revenue, revenue by product, the best product and the best day. Look at the file first."""

RECORDING = [
    """\
First I look at the file.
```python
import pandas as pd

sales = pd.read_csv("sales.csv")
print(sales.dtypes.to_string())
print(len(sales), "rows")
```
""",
    """\
Revenue is units times price.
```python
sales["revenue"] = sales["units"] * sales["price"]
by_product = sales.groupby("product")["revenue"].sum().sort_values(ascending=False)
by_day = sales.groupby("date")["revenue"].sum()
print(by_product.to_string())
```
""",
    # The answer lacks a field: the call raises an exception in the sandbox that names it.
    """\
```python
final_answer({"total": sales["revenue"].sum(), "by_product": by_product, "best_product": by_product.idxmax()})
```
""",
    # So the model can correct the answer.
    """\
```python
final_answer({
    "total": sales["revenue"].sum(),
    "by_product": by_product,
    "best_product": by_product.idxmax(),
    "best_day": by_day.idxmax(),
})
```
""",
]


class Report(BaseModel):
    """The answer."""

    total: float
    by_product: dict[str, float]
    best_product: str
    best_day: str


async def main() -> None:
    model = model_for(RECORDING)
    with TemporaryDirectory() as folder:
        (Path(folder) / "sales.csv").write_text(SALES)
        async with DockerCommandLineCodeExecutor(mode="session", work_dir=folder) as executor:
            agent = CodeActAgent("analyst", executor, model_client=model, output_content_type=Report)
            result = await Console(agent.run_stream(task=TASK))
    await model.close()

    answer = result.messages[-1]
    if not isinstance(answer, StructuredMessage):
        raise SystemExit("There is no report: " + answer.to_text())
    report: Report = answer.content
    print(
        f"\nA {type(report).__name__}, checked: {report.total:.2f} in all, most of it with the {report.best_product}."
    )


if __name__ == "__main__":
    asyncio.run(main())

"""Data analysis in steps: the code for each question uses variables of the code before.

python samples/sales_analysis.py                 a recorded model, no key needed
python samples/sales_analysis.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.agents import CodeExecutorAgent
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

QUESTIONS = [
    "The file sales.csv has the columns date, product, units, price. What is the total revenue?",
    "Which product brought in the most? Write the revenue of each product to by_product.csv, the largest first.",
    "What is the average revenue of a sale, and of a day on which something was sold?",
]

RECORDING = [
    """\
```python
import csv

with open("sales.csv", newline="") as file:
    sales = list(csv.DictReader(file))
for sale in sales:
    sale["revenue"] = int(sale["units"]) * float(sale["price"])
total = sum(sale["revenue"] for sale in sales)
print(f"total revenue: {total:.2f}")
```
""",
    "The total revenue is 500.00.",
    """\
```python
by_product = {}
for sale in sales:
    by_product[sale["product"]] = by_product.get(sale["product"], 0) + sale["revenue"]
ranking = sorted(by_product.items(), key=lambda item: item[1], reverse=True)
with open("by_product.csv", "w", newline="") as file:
    csv.writer(file).writerows([("product", "revenue"), *ranking])
print("best seller: {} ({:.2f})".format(*ranking[0]))
```
""",
    "The teapot is the best seller, with 273.00. The revenue of each product is in by_product.csv.",
    """\
```python
days = {sale["date"] for sale in sales}
print(f"average sale: {total / len(sales):.2f}")
print(f"average day: {total / len(days):.2f}")
```
""",
    "A sale brings in 62.50 on average, a day with sales 83.33.",
]


async def main() -> None:
    model = model_for(RECORDING)
    with TemporaryDirectory() as folder:
        work_dir = Path(folder)
        (work_dir / "sales.csv").write_text(SALES)

        # A session is one interpreter for all blocks. The files of work_dir are copied to its working directory.
        async with DockerCommandLineCodeExecutor(mode="session", work_dir=work_dir) as executor:
            agent = CodeExecutorAgent("analyst", executor, model_client=model, max_retries_on_error=2)
            for question in QUESTIONS:
                await Console(agent.run_stream(task=question))

        # Files that the code wrote have been copied back to work_dir.
        print("\nby_product.csv on the host:")
        print((work_dir / "by_product.csv").read_text())
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())

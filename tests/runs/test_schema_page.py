"""docs/runs.md describes every event and every field as the models have them."""

from tests.runs.schema_page import BEGIN, END, PAGE, schema_section


def test_the_page_has_the_tables_of_the_models():
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()
    assert written == schema_section().strip(), "run `python -m tests.runs.schema_page`"

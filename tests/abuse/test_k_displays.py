"""K6. Displays whose JSON takes long to parse: nothing of them is parsed until somebody asks for the value."""

from .lag import MOST_EXCESS_S, median_excess
from .oracles import MIB
from .subject import Subject, each_engine

JSON = "application/json"
SHAPES = {
    "floats": "[i * 1.2345678901e-5 for i in range(180_000)]",
    "keys": "{str(i): i for i in range(220_000)}",
    "long integers": "[10 ** 4200 + i for i in range(900)]",
    "a long string": "['\\u20ac' * 600_000]",
    "nested": "[eval('[' * 90 + ']' * 90) for i in range(800)]",
    "short strings": "['\\\\\"' + str(i) for i in range(200_000)]",
}
SHOW = """
    import sys
    from IPython.display import display
    sys.set_int_max_str_digits(0)
    value = {shape}
    for _ in range(4):
        display({{"text/plain": "a display", "application/json": value}}, raw=True)
"""


# Case K6.
@each_engine
async def test_json_of_any_shape_is_not_parsed_on_arrival(subject: Subject) -> None:
    await subject.start(memory="400m", output=MIB)
    subject.kept = 128 * MIB
    for name, shape in SHAPES.items():
        code = SHOW.format(shape=shape)

        async def load(name: str = name, code: str = code) -> None:
            result = await subject.run(code, timeout=40)
            assert result.outcome == "ok", (name, result.output)
            assert [list(each.data) for each in result.displays] == [["text/plain", JSON]] * 4, name
            assert all(isinstance(each.forms[JSON], bytes) for each in result.displays), name

        assert await median_excess(load) < MOST_EXCESS_S, name

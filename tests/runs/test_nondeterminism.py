"""Variables of a session that running its code again gives other values."""

import pytest

from autogen_codeact.runs.nondeterminism import nondeterministic_variables


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import random\nx = random.random()\ny = x + 1\nz = 2", ["x", "y"]),
        ("from random import shuffle\nvalues = [1, 2]\nshuffle(values)\nothers = [3]", ["values"]),
        ("import random as r\nfound = []\nfound.append(r.random())", ["found"]),
        ("import numpy as np\na = np.random.rand(3)\nb = np.arange(3)\nc = {}\nc['a'] = a", ["a", "c"]),
        ("import time\nbegan = time.time()\ntime.sleep(0)\nname = 'time'", ["began"]),
        ("from time import time\nbegan = time()", ["began"]),
        ("import uuid, os, datetime\na = uuid.uuid4()\nb = os.urandom(4)\nc = datetime.date.today()", ["a", "b", "c"]),
        ("import random\ndef roll():\n    return random.randint(1, 6)\nx = roll()", ["x"]),
        ("import random\nif random.random() > 0.5:\n    x = 1\nelse:\n    y = 1\nz = 1", ["x", "y"]),
        ("import random\nfor _ in range(3):\n    total = random.random()", ["total"]),
        ("x = hash('a')\ny = id(x)\n", ["x", "y"]),
        ("%time 1\nx = 1\n!ls", []),
        ("x = (", []),
    ],
)
def test_nondeterministic_variables_are_found(code, names):
    assert nondeterministic_variables([code]) == names


def test_later_blocks_use_what_earlier_ones_made():
    assert nondeterministic_variables(
        ["import random", "def roll(): return random.random()", "x = roll()", "y = [x]"]
    ) == [
        "x",
        "y",
    ]

"""The final word ends a conversation; the same word in code, output or thoughts does not."""

import pytest
from autogen_agentchat.base import TerminatedException, TerminationCondition
from autogen_agentchat.messages import MultiModalMessage, StopMessage, TextMessage, ThoughtEvent
from autogen_core import ComponentModel

from autogen_codeact.teams import FinalWordTermination

FINAL = [
    "TERMINATE",
    "It is 42. TERMINATE",
    "It is 42.\n\n**TERMINATE**\n",
    "It is 42: TERMINATE.",
    "It is 42.\r\nTERMINATE\r\n",
    "It printed\n```\nTERMINATE\n```\nTERMINATE",
    '```json\n{"laptop": "B", "score": 87.0}\n```\nTERMINATE',
    "```output\n42\n```\n_TERMINATE_",
    "__TERMINATE__",
]
NOT_FINAL = [
    "",
    "I say TERMINATE when it works.",
    "TERMINATED",
    "The constant is JOB_TERMINATE",
    "DETERMINATE? no: INDETERMINATE",
    "terminate",
    "```python\nprint('TERMINATE')\n```",
    "```python\nprint(1)\n```\nTERMINATE",
    "```py\nprint(1)\n```\nTERMINATE",
    "```sh\nls\n```\nTERMINATE",
    "```python\nprint(1)\n# TERMINATE",
    "It printed\n```\nTERMINATE\n```",
    "It printed\n```\nTERMINATE```",
    "It printed\n```output\n42\nTERMINATE",
    "~~~text\nTERMINATE\n~~~\n",
    "<execute>\nprint(1)\n</execute>\nTERMINATE",
]


@pytest.mark.parametrize("text", FINAL)
async def test_final_word_ends_the_conversation(text):
    condition = FinalWordTermination(sources=["coder"])
    stop = await condition([TextMessage(content=text, source="coder")])
    assert stop is not None
    assert (stop.content, stop.source) == ("coder said TERMINATE", "FinalWordTermination")
    assert condition.terminated


@pytest.mark.parametrize("text", NOT_FINAL)
async def test_other_text_does_not_end_the_conversation(text):
    condition = FinalWordTermination(sources=["coder"])
    assert await condition([TextMessage(content=text, source="coder")]) is None
    assert not condition.terminated


async def test_only_the_chat_messages_of_its_sources_count():
    condition = FinalWordTermination(sources=["coder"])
    ignored = [
        TextMessage(content="TERMINATE", source="executor"),
        TextMessage(content="TERMINATE", source="user"),
        ThoughtEvent(content="TERMINATE", source="coder"),
    ]
    assert await condition(ignored) is None
    assert await condition([MultiModalMessage(content=["Seen. TERMINATE"], source="coder")]) is not None


async def test_without_sources_everybody_counts():
    assert await FinalWordTermination()([StopMessage(content="TERMINATE", source="anyone")]) is not None


async def test_termination_must_be_reset_before_it_is_asked_again():
    condition = FinalWordTermination("DONE")
    done = [TextMessage(content="DONE", source="coder")]
    assert await condition(done) is not None
    with pytest.raises(TerminatedException):
        await condition(done)
    await condition.reset()
    assert await condition(done) is not None


async def test_config_contains_every_argument():
    condition = FinalWordTermination("FIN", sources=["coder"], languages=["javascript"])
    text = condition.dump_component().model_dump_json()
    loaded = TerminationCondition.load_component(ComponentModel.model_validate_json(text))
    assert loaded.dump_component().model_dump_json() == text
    assert await loaded([TextMessage(content="FIN", source="executor")]) is None
    assert await loaded([TextMessage(content="```js\n1\n```\nFIN", source="coder")]) is None
    assert await loaded([TextMessage(content="```python\n1\n```\nFIN", source="coder")]) is not None

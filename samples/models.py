"""Selects the model of a sample: the one that `--model` names, else the recorded answers of the sample."""

import argparse
import os
from collections.abc import Sequence
from functools import cache

from autogen_core.models import ChatCompletionClient, ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient


def model_for(recording: Sequence[str]) -> ChatCompletionClient:
    """Return the model that the command line selects, and print which one it is.

    Args:
        recording: The answers of the recorded model, in this order, whatever messages it gets.

    Returns:
        The recorded model; with `--model NAME` that model, at OPENAI_BASE_URL if that is set.
    """
    name = _model_name()
    if name is None:
        return ReplayChatCompletionClient(list(recording))
    # Given explicitly, because AutoGen knows the abilities of only some models.
    info = ModelInfo(vision=False, function_calling=True, json_output=True, structured_output=True, family="unknown")
    if base_url := os.environ.get("OPENAI_BASE_URL"):
        return OpenAIChatCompletionClient(model=name, model_info=info, base_url=base_url)
    return OpenAIChatCompletionClient(model=name, model_info=info)


@cache
def _model_name() -> str | None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="use this model, with the key in OPENAI_API_KEY (and its server in OPENAI_BASE_URL, if it is not OpenAI's); "
        "by default the sample uses its recorded answers",
    )
    name: str | None = parser.parse_args().model
    if name is None:
        print("Model: a recording, no key needed. Its answers are in this sample; the code in them really runs.\n")
    elif "OPENAI_API_KEY" in os.environ:
        print(f"Model: {name}\n")
    else:
        parser.error(
            "--model NAME needs a key: set OPENAI_API_KEY (to any value, if the server at OPENAI_BASE_URL needs none)."
        )
    return name

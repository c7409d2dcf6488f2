"""Which model a sample talks to: the one that `--model` names, else a recording that comes with the sample."""

import argparse
import os
from collections.abc import Sequence
from functools import cache

from autogen_core.models import ChatCompletionClient, ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient


def model_for(recording: Sequence[str]) -> ChatCompletionClient:
    """Return the model that was asked for on the command line, and say which one it is.

    Args:
        recording: What the recorded model answers, in this order, whatever it is told.

    Returns:
        The recorded model; with `--model NAME` that model, at OPENAI_BASE_URL where that is set.
    """
    name = _asked_for()
    if name is None:
        return ReplayChatCompletionClient(list(recording))
    # Said outright, because AutoGen knows only the names of models that are served by their makers.
    info = ModelInfo(vision=False, function_calling=True, json_output=True, structured_output=True, family="unknown")
    if base_url := os.environ.get("OPENAI_BASE_URL"):
        return OpenAIChatCompletionClient(model=name, model_info=info, base_url=base_url)
    return OpenAIChatCompletionClient(model=name, model_info=info)


@cache
def _asked_for() -> str | None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="ask this model, with the key in OPENAI_API_KEY (and its server in OPENAI_BASE_URL, if it is not OpenAI's); "
        "without it the sample's recorded answers are used",
    )
    name: str | None = parser.parse_args().model
    if name is None:
        print("Model: a recording, no key needed. Its answers are in this sample; the code in them really runs.\n")
    elif "OPENAI_API_KEY" in os.environ:
        print(f"Model: {name}\n")
    else:
        parser.error("--model needs a key: set OPENAI_API_KEY (to anything, if OPENAI_BASE_URL's server wants none).")
    return name

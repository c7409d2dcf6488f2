"""The options that every command with a model has, in one place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from autogen_codeact.cli.model_choice import DEFAULT_TIMEOUT_S, ModelChoice
from autogen_codeact.cli.shared_options import Command, with_options

model_option = partial(typer.Option, rich_help_panel="Model")

ModelTimeoutOption = Annotated[
    float,
    model_option(
        metavar="SECONDS",
        help="End the run if the model's server sends nothing for this time. With --stream each piece of the answer counts, else "
        "only the whole answer does.",
        show_default="120",
    ),
]


def _options(
    *,
    model: Annotated[
        str,
        model_option(
            metavar="MODEL",
            help="openai/NAME, anthropic/NAME, gemini/NAME or ollama/NAME; the NAME of a model at OpenAI or at --base-url; "
            "replay:FILE for recorded answers; or FILE.json for an AutoGen model client component. `codeact models` lists them.",
        ),
    ],
    base_url: Annotated[
        str | None,
        model_option(
            metavar="URL", help="Another server that speaks OpenAI's format, such as http://localhost:8000/v1."
        ),
    ] = None,
    api_key_env: Annotated[
        str | None,
        model_option(
            metavar="VAR",
            help="Environment variable with the key.",
            show_default="OPENAI_API_KEY, or that of the prefix",
        ),
    ] = None,
    model_timeout: ModelTimeoutOption = DEFAULT_TIMEOUT_S,
    untrusted: Annotated[
        bool,
        model_option(
            "--untrusted", help="Refuse FILE.json if it sets a server, a key, or anything else that needs trust."
        ),
    ] = False,
) -> ModelChoice:
    return ModelChoice(model, base_url, api_key_env, untrusted, model_timeout)


def with_model_options(*, required: bool = True) -> Callable[[Command], Command]:
    """Give a command the options of a model; they reach it as its argument `model_choice`, a `ModelChoice`."""
    return with_options("model_choice", _options, {} if required else {"model": {"default": ""}})

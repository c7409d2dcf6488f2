"""The allow-list for untrusted configurations names what exists, and decides about each field of our own components."""

import importlib

import pytest

from autogen_codeact.teams.untrusted import ALLOWED, REASONS, REFUSED


def _schema(provider):
    module, _, name = provider.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        pytest.skip(f"not installed: {error}")
    return found.component_config_schema.model_fields


@pytest.mark.parametrize("provider", sorted(ALLOWED))
def test_each_allowed_field_exists(provider):
    assert set(ALLOWED[provider].fields) <= set(_schema(provider))


@pytest.mark.parametrize("provider", sorted(name for name in ALLOWED if name.startswith("autogen_codeact.")))
def test_each_field_of_our_components_is_allowed_or_refused_with_a_reason(provider):
    assert set(_schema(provider)) <= set(ALLOWED[provider].fields) | set(REASONS) | {"tool_limits"}


@pytest.mark.parametrize("provider", sorted(REFUSED))
def test_each_refused_provider_exists_and_is_not_allowed(provider):
    assert provider not in ALLOWED
    assert _schema(provider) is not None

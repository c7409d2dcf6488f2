"""The allow-list for untrusted configurations names what exists, and decides about each field of our own components."""

import importlib

from autogen_codeact.teams.untrusted import ALLOWED, REASONS, REFUSED
from tests.cases import case


def _class_of(provider):
    module, _, name = provider.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError:
        return None  # not installed


def _schema(provider):
    found = _class_of(provider)
    return found and found.component_config_schema.model_fields


def test_each_allowed_field_exists():
    for provider in sorted(ALLOWED):
        with case(provider):
            assert set(ALLOWED[provider].fields) <= set(_schema(provider) or ALLOWED[provider].fields)


def test_each_field_of_our_components_is_allowed_or_refused_with_a_reason():
    for provider in sorted(name for name in ALLOWED if name.startswith("autogen_codeact.")):
        with case(provider):
            assert set(_schema(provider)) <= set(ALLOWED[provider].fields) | set(REASONS) | {"tool_limits"}


def test_each_refused_provider_exists_and_is_not_allowed():
    for provider in sorted(REFUSED):
        with case(provider):
            assert provider not in ALLOWED
            _class_of(provider)  # an AttributeError if the module has no such name

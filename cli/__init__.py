"""The `codeact` command."""

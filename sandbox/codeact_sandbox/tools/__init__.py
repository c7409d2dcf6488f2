"""Calls from code in the sandbox to functions of the host."""

"""The sandbox inside other programs."""

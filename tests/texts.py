"""Texts that hypothesis makes up."""

from hypothesis import strategies as st

ANY = st.characters(exclude_categories=["Cs"])
"""The characters that UTF-8 can encode. They are hypothesis's own default, too, which takes a second to find them."""

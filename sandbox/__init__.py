"""A sandbox and everything about it: how it is started, what crosses its border, and the program inside it."""

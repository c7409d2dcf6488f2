"""The process that runs blocks: one, and exits, or one after the other (the interpreter of a session)."""

"""How code runs: sandbox, session, result."""

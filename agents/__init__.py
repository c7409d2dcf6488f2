"""How an agent thinks: extract code, run it, decide, reflect."""

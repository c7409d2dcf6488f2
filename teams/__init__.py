"""How agents work together."""

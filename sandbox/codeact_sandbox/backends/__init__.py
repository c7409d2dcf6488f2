"""How a sandbox is started, reached and removed."""

"""Files between the host and the sandbox."""

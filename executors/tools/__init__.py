"""Functions of the host that code in the sandbox can call."""

"""How a sandbox is made of this machine's own namespaces, without a daemon."""

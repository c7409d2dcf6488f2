"""Access from a sandbox without a network to the hosts of an allow-list; the host decides on each connection."""

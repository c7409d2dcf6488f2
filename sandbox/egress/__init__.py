"""The way out of a sandbox that has no network: to named hosts only, each connection decided on the host."""

"""What sandboxed code may reach: allowed domains, secrets in requests, the package index."""

"""The read-only package index that the host serves to a sandbox with `allow_pip`."""

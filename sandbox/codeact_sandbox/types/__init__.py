"""Options, limits, errors, results and events of a sandbox; nothing here imports anything else of the library."""

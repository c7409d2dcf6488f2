"""Many tasks: a batch of runs with results, attempts and a summary."""

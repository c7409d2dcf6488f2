"""Our executors beside floors and peers, in one run on one machine; `benchmarks/compare.py` is the command."""

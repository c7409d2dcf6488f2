"""Our executors beside floors and libraries, in one run on one machine; `benchmarks/compare.py` is the command."""

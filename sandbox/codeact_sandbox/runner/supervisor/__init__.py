"""PID 1: holds the stream to the host, starts blocks, enforces deadlines, limits output, kills and reaps processes."""

"""The program inside the sandbox: standard library only, Python 3.8+, sent over the stream and never imported by the host.

supervisor   PID 1: holds the stream to the host, enforces deadlines, caps output, kills trees, reaps
zygote       a warm interpreter that has run no user code and forks workers
worker       runs blocks: one and exits (process mode), or one after the other (session mode)
"""

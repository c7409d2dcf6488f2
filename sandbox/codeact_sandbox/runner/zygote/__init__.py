"""The warm interpreter that has run no user code, and forks workers."""

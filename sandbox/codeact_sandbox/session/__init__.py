"""A sandbox as its caller uses it: blocks, branches, replay, ports, pools."""

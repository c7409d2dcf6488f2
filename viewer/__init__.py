"""The run viewer: pages that show a run in a browser, live or from its folder."""

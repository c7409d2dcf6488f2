"""Small tasks that a live model solves with each library's agents."""

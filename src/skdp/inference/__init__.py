"""Standard errors and intervals, from released values alone."""

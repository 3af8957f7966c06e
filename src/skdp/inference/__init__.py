"""Standard errors and intervals, computed from released values alone."""

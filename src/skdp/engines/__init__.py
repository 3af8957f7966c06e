"""Where records are added up: every engine returns the same integers."""

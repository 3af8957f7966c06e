"""Check privacy records, with code that is independent of the code that made them."""

"""Plans, which decide everything that a fit will do before any data is read."""

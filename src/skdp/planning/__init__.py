"""Make plans. A plan decides what a fit will do, before any data is read."""

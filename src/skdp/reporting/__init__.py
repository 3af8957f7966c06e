"""A page about a model, for whoever must answer for the data and for a colleague."""

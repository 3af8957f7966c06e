"""Score models on private tables and choose between models, within a budget."""

"""Privacy statements and report pages about a model."""

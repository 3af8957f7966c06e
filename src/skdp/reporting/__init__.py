"""Write privacy statements and report pages about a model."""

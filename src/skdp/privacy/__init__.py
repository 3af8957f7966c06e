"""All code that the privacy guarantee rests on, from grids to budgets."""

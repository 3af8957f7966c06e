"""The code that privacy rests on, from the grids to the budgets."""

"""All code that the privacy guarantee rests on, from rounding to budgets."""

"""Check privacy records with separate code, not the code that spent the budget."""

"""Plans: everything a fit will do, decided before the data is touched."""

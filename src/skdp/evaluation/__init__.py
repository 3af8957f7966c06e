"""Scores of a model, and choices between models, that are paid for."""

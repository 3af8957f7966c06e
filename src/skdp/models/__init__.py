"""Define the losses and the penalties of linear models."""

"""What is minimised: losses and penalties."""

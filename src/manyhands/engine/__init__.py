"""Training: obeys a plan."""

"""What can be done with a finished model? Start reading at `load`, then `predict` or `export`."""

"""Finding a better plan."""

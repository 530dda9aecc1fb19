"""Which layers does a model have, and what does each cost? Start reading at `graph`, then `trace`."""

"""Which layers does a model have, and what does each cost in FLOPs and bytes? Start reading at `graph`, then `trace`."""

"""Which shardings of all layers are fast? Start reading at `annealing`."""

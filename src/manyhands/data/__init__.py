"""How does a data set become batches? Start reading at `load`, then `dataset`, `sampler` and `feeds`."""

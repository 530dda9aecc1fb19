"""How do micro-batches go through stages? Start reading at `pipeline_step`."""

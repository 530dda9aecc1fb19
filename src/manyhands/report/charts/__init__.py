"""Which charts are there, before anything draws them? Start reading at `spec`."""

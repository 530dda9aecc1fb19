"""Which modules are replaced or changed in place, and why? Start reading at `sync_batchnorm`."""

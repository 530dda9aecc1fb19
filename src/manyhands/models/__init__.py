"""Which models are there, as plain modules that know nothing of parallelism? Start reading at `zoo`."""

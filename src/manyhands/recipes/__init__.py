"""Which studies of the sources are shipped? They are TOML files, read by `studies.recipe`."""

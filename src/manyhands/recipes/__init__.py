"""The studies of the sources, as TOML."""

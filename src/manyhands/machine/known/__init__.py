"""Machines that are described, as TOML, with the sources of their figures."""

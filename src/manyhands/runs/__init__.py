"""Runs: one training, end to end, as a folder."""

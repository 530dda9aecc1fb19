"""The plan: how a training is split and run, as data."""

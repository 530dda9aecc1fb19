"""Optimizers by name and learning-rate schedules."""

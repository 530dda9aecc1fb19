"""Tuning: batch size, learning rate and loader processes, found by measuring."""

"""Readers of the ordinary formats, the store of decoded arrays, and the feed of batches."""

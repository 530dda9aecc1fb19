"""Readers of the ordinary formats, one a file."""

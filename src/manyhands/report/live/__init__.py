"""The live page: run folders, watched by a small server."""

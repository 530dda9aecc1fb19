"""The machine: what it has, and how a process settles on it."""

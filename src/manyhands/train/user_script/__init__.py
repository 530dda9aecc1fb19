"""How does a user's own script run on ranks? Start reading at `launch`, then `api`."""

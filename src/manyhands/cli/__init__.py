"""What can be called from a shell? Start reading at `main`; each command is one thin file of its name."""

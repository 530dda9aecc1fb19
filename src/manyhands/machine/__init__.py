"""What is here, or described for a machine that is not? Start reading at `machine`, then `detect`."""

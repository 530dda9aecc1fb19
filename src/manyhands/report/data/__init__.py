"""What does a report read from run folders? Start reading at `summary`."""

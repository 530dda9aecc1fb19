"""What would a step, a cluster or a training cost? Start reading at `simulator`."""

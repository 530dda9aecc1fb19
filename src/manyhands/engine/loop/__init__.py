"""What happens from batch to batch? Start reading at `loop`, then `step`; checkpoints and evaluation are here too."""

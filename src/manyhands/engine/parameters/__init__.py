"""How do parameters, gradients and optimizer state lie in memory? Start reading at `flat_parameters`."""

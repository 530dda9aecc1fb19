"""What does a layer cost? Start reading at `cost_model`, the protocol of `roofline` and `profiled`."""

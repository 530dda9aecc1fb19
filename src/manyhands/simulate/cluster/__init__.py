"""What would workers on a virtual clock learn, with real gradients? Start reading at `train`."""

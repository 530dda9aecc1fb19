"""The virtual cluster: real gradients under a virtual clock."""

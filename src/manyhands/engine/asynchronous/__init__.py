"""How do workers train that do not wait for each other? Start reading at `coordinator`, then `worker`."""

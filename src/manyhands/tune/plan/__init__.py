"""Which plan is fastest on this machine? Start reading at `choose`."""

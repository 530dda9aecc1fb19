"""How is a plan carried out? Start reading at `parallelize`, which picks the strategy, then at `loop.loop`."""

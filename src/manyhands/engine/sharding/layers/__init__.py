"""Which layers need more than smaller weights when they are sharded? Start reading at `embedding`, the shortest."""

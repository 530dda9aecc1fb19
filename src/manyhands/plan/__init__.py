"""How is the work split? Start reading at `plan`, then `spec` (its words) and `resolve` (one sharding a layer)."""

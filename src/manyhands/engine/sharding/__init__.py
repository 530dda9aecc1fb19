"""How does one layer run on several ranks? Start reading at `hybrid`, then `sharded_layer` and `activation`."""

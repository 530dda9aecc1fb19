"""How is each file format read? Start reading at `idx`, the shortest; `data.source` has the protocol."""

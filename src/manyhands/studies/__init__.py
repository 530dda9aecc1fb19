"""How do many trainings become a table beside a paper? Start reading at `recipe`, then `study`."""

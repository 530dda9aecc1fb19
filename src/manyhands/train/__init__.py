"""How does one training go, end to end? Start reading at `create`, then `launch`, `worker` and `train`."""

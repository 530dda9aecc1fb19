"""How is one step of a plan simulated, compiled by numba? Start reading at `simulation`, then `execute`."""

"""How fast are layers, links and plans on this machine? Start reading at `plan_benchmark` or `layer_profiler`."""

"""What is checked before the first step, so that no run trains as another one? Start reading at `guard`."""

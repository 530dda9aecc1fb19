"""How do ranks keep one model? Start reading at `base`, the protocol, then `single_process` and `ddp`."""

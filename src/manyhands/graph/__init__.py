"""The layers of an unchanged module, with shapes, FLOPs, bytes and what follows what."""

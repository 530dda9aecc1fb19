"""How do weights move? Start reading at `factory`; `layerwise` is the base of LARS and LAMB."""

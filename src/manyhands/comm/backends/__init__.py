"""How do bytes go between ranks? Start reading at `base`, which maps torch's calls onto `shm` and `mpi`."""

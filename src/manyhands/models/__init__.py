"""Plain nn.Modules that know nothing of parallelism, the zoo that names them, and loading a user's own."""

"""How are ranks started, watched and ended? Start reading at `elastic`; `bootstrap` is what each rank runs first."""

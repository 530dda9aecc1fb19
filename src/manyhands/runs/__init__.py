"""What does a run folder hold? Start reading at `run_folder`; nothing here imports torch."""

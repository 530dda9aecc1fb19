"""What an operation and a transfer cost."""

"""Plan to timeline, without running it."""

"""When a worker may continue."""

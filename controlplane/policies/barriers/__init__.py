"""When a worker may go on."""

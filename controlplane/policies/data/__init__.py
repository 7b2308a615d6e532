"""Which samples a worker may draw."""

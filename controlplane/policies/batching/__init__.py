"""How many samples each worker takes next."""

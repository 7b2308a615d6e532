"""How fast each worker will be in the coming iteration."""

"""Real gradients for simulated workers: small models on generated data, computed for many workers at once."""

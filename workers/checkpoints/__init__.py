"""Checkpoints on disk, whoever holds the parameters: their files, where they lie, and the thread that writes them."""

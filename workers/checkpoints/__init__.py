"""Checkpoints on disk, of servers or workers: their files, their folder, and the thread that writes them."""

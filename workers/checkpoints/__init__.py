"""Checkpoints on disk, of servers or workers: file format, folder, and the writer thread."""

"""Reproduces the papers' systems with real training processes."""

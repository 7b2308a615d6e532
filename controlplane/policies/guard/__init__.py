"""Judges of convergence: whether other policies make training worse."""

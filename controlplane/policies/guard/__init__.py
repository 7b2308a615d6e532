"""Convergence guards: whether other policies make training worse."""

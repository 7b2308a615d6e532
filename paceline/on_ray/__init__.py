"""Paceline's agents as actors of a Ray cluster. Modules that import Ray are imported only where it is installed."""

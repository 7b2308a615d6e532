"""Figures: pure functions from rows to plain plotly dicts. No Django, no clock; ``frontend.build`` queries the rows."""

from frontend.figures.table import COMPARISONS, FIGURES, MACHINES, SIMULATIONS, FigureKind

__all__ = ["COMPARISONS", "FIGURES", "MACHINES", "SIMULATIONS", "FigureKind"]

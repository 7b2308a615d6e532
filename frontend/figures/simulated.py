"""Draws a simulation's policies side by side: the phases of an iteration under each, in virtual time."""

from typing import Any

import numpy as np

from frontend.figures.phases import TITLES, bar_style
from frontend.figures.points import numbers
from frontend.figures.rows import Simulated, View
from frontend.figures.theme import THEMES, axis, empty, layout

ROW_PX = 34
PHASES = ("compute", "communication", "waiting", "coordination")


def simulated_iterations(found: Simulated, view: View) -> dict[str, Any]:
    """A bar for each policy: its mean iteration, split into phases; waiting is hatched."""
    name = "simulated-iterations"
    if not found.outcomes:
        return empty(name, "No data yet: a bar appears for each policy once its run has completed.")
    theme = THEMES[view.theme]
    labels = [outcome.policy for outcome in found.outcomes]
    bars = []
    for phase in PHASES:
        parts = np.array([outcome.iteration_s * getattr(outcome, phase) * 1000 for outcome in found.outcomes])
        bars.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": TITLES[phase],
                "y": labels,
                "x": numbers(parts.round(3)),
                "marker": bar_style(phase, theme),
                "hovertemplate": f"%{{y}} {phase}: %{{x:.4~g}} ms<extra></extra>",
                "meta": f"{TITLES[phase]} (ms)",
            }
        )
    return {
        "data": bars,
        "layout": layout(
            theme,
            name=name,
            caption=_caption(found),
            height=ROW_PX * len(labels) + 110,
            barmode="stack",
            hovermode="closest",
            xaxis=axis(theme, "Mean iteration (ms of virtual time)", rangemode="tozero"),
            yaxis=axis(theme, type="category", autorange="reversed", showgrid=False),
        ),
    }


def _caption(found: Simulated) -> str:
    best = min(found.outcomes, key=lambda outcome: (outcome.iteration_s, outcome.policy))
    base = next((outcome for outcome in found.outcomes if outcome.policy == found.baseline), None)
    if base is None or base is best or not best.iteration_s:
        return f"Shortest iteration time: {best.policy} with {best.iteration_s * 1000:.4g} ms."
    return (
        f"Shortest iteration time: {best.policy} with {best.iteration_s * 1000:.4g} ms:"
        f" {base.iteration_s / best.iteration_s:.2f} times as fast as {base.policy} (baseline)."
    )

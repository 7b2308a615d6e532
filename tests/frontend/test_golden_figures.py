"""Figures against goldens. To write them anew after looking at the difference: PACELINE_REWRITE_GOLDENS=1 make test."""

import json
import os
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from frontend.figures import FIGURES, MACHINES, SIMULATIONS
from frontend.figures.points import plain
from frontend.figures.rows import View
from tests.frontend.rows import (
    ahead,
    learning,
    load,
    moved,
    predicted,
    predicting,
    simulated,
    speeds,
    two_iterations,
    two_rows,
    two_workers,
    waited,
    ways,
)

GOLDENS = Path(__file__).parent / "goldens"
ROWS = {
    "traces": two_workers,
    "convergence": learning,
    "leads": ahead,
    "heat": two_rows,
    "window": two_iterations,
    "placement": moved,
    "waiting": waited,
    "others": ways,
    "predictions": predicted,
    "predictors": predicting,
    "speeds": speeds,
    "load": load,
    "simulated": simulated,
}
NUMBERS = re.compile(r"\[[-\d.,\s]+\]")
"""Lists of numbers, which stand on one line."""

KINDS = FIGURES | MACHINES | SIMULATIONS
CASES = [(name, theme) for name in KINDS for theme in ("light", "dark")]


def drawn(name: str, theme: str, x: str = "") -> dict[str, Any]:
    kind = KINDS[name]
    return kind.draw(ROWS[kind.rows](), View(theme=theme, x=x or kind.x[0]))


def readable(value: Any) -> Any:
    """The figure with its typed arrays spelled out, so that a person can review it."""
    if isinstance(value, dict):
        return (
            [round(number, 6) for number in plain(value)]
            if "bdata" in value
            else {k: readable(v) for k, v in value.items()}
        )
    return [readable(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize(("name", "theme"), CASES)
def test_a_figure_is_drawn_as_its_golden_says(name: str, theme: str) -> None:
    golden = GOLDENS / f"{name}.{theme}.json"
    made_by = f"tests/frontend/rows.py, drawn by frontend.figures {name}"
    spelled_out = json.dumps({"made by": made_by} | readable(drawn(name, theme)), indent=1)
    text = NUMBERS.sub(lambda found: " ".join(found[0].split()), spelled_out) + "\n"
    if os.environ.get("PACELINE_REWRITE_GOLDENS"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize(("name", "theme"), CASES)
def test_plotly_accepts_every_attribute(name: str, theme: str) -> None:
    for x in KINDS[name].x:
        figure = go.Figure(json.loads(json.dumps(drawn(name, theme, x))))
        assert len(figure.data) > 0

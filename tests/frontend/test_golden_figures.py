"""Figures against goldens, in the light theme; the dark figure differs in colours of the token table alone.

To write goldens anew after looking at the difference: PACELINE_REWRITE_GOLDENS=1 make test.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from frontend.figures import FIGURES, MACHINES, SIMULATIONS
from frontend.figures.points import plain
from frontend.figures.rows import View
from frontend.figures.theme import DARK, LIGHT, Theme
from tests.frontend.rows import (
    ahead,
    learning,
    linked,
    load,
    logged,
    measured,
    moved,
    predicted,
    predicting,
    samples,
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
    "measured": measured,
    "logged": logged,
    "topology": linked,
    "samples": samples,
    "simulated": simulated,
}
NUMBERS = re.compile(r"\[[-\d.,\s]+\]")
"""Lists of numbers, which stand on one line."""

KINDS = FIGURES | MACHINES | SIMULATIONS
GOLDEN = [
    *(name for name, kind in KINDS.items() if kind.rows not in {"measured", "samples"}),
    *("data-loading", "gpu-utilization", "gpu-temperature", "disk"),
]
"""Default charts of measurements are drawn alike: a few of them stand for all."""

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


def tokens(theme: Theme) -> dict[str, set[str]]:
    """The names of each colour of a theme."""
    names: dict[str, set[str]] = {}
    for field in fields(Theme):
        value = getattr(theme, field.name)
        for place, colour in enumerate(value if isinstance(value, tuple) else [value]):
            if colour.startswith("#"):
                names.setdefault(colour, set()).add(f"{field.name}-{place}")
    return names


def named(value: str, theme: Theme) -> set[str]:
    """What a colour is called in the token table, with its opacity; empty for anything else."""
    faded = re.fullmatch(r"rgba\((\d+),(\d+),(\d+),(.+)\)", value)
    colour = "#" + "".join(f"{int(channel):02x}" for channel in faded.groups()[:3]) if faded else value
    return {name + (f" at {faded[4]}" if faded else "") for name in tokens(theme).get(colour, ())}


def differences(light: Any, dark: Any, path: str = "") -> Iterator[str]:
    """Where two figures differ in anything but the theme's own colours."""
    if isinstance(light, dict) and isinstance(dark, dict) and light.keys() == dark.keys():
        for key in light:
            yield from differences(light[key], dark[key], f"{path}.{key}")
    elif isinstance(light, list) and isinstance(dark, list) and len(light) == len(dark):
        for place, pair in enumerate(zip(light, dark, strict=True)):
            yield from differences(*pair, f"{path}[{place}]")
    elif ".textfont.color" in path and {light, dark} <= {"#000000", "#ffffff"}:
        return  # Text on a computed ground is black or white, whichever can be read on it.
    elif repr(light) != repr(dark) and not (isinstance(light, str) and named(light, LIGHT) & named(dark, DARK)):
        yield f"{path}: {light!r} in light, {dark!r} in dark"


@pytest.mark.parametrize("name", GOLDEN)
def test_a_figure_is_equal_to_its_golden(name: str) -> None:
    golden = GOLDENS / f"{name}.json"
    made_by = f"tests/frontend/rows.py, drawn by frontend.figures {name}"
    spelled_out = json.dumps({"made by": made_by} | readable(drawn(name, "light")), indent=1)
    text = NUMBERS.sub(lambda found: " ".join(found[0].split()), spelled_out) + "\n"
    if os.environ.get("PACELINE_REWRITE_GOLDENS"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize(("name", "x"), [(name, x) for name, kind in KINDS.items() for x in kind.x])
def test_the_dark_figure_is_the_light_one_in_other_colours(name: str, x: str) -> None:
    light, dark = (json.loads(json.dumps(readable(drawn(name, theme, x)))) for theme in ("light", "dark"))
    assert light != dark
    assert [*differences(light, dark)] == []


def test_another_colour_than_the_tokens_counterpart_is_a_difference() -> None:
    assert [*differences({"color": LIGHT.text}, {"color": DARK.text})] == []
    assert [*differences({"color": LIGHT.text}, {"color": DARK.muted})]
    assert [*differences({"color": "#123456"}, {"color": "#654321"})]
    assert [*differences({"width": 1}, {"width": 2})]


@pytest.mark.parametrize(("name", "theme"), CASES)
def test_plotly_accepts_every_attribute(name: str, theme: str) -> None:
    for x in KINDS[name].x:
        figure = go.Figure(json.loads(json.dumps(drawn(name, theme, x))))
        assert len(figure.data) > 0

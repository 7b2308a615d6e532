"""Charts with axes are drawn by a part of plotly.js, a third of the whole; the few others by the whole."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.template import Context, Template

from frontend.figures import COMPARISONS, FIGURES, MACHINES, SIMULATIONS
from frontend.figures.rows import View
from frontend.figures.waiting import MOST_BARS, MOST_LABELS, waiting_price
from frontend.finders import CHART_LIBRARY, WHOLE_LIBRARY
from frontend.report import render_report
from tests.frontend import factories
from tests.frontend.rows import waited

GOLDENS = Path(__file__).parent / "goldens"
CARTESIAN = {"bar", "box", "contour", "heatmap", "histogram", "scatter", "violin"}
"""Of the kinds of traces that it draws, those that a figure of Paceline's might want."""

SHA256 = "79542150855a52c567260e3137095dbe2b744e6d702a5cabe67da246942fba7a"
"""Of package/plotly-cartesian.min.js in plotly.js-cartesian-dist-min 4.1.1, sha512-o8GrFeusncwBIxbBynRJpY4pkgVB6caM+
JLpwrLYbbsO7dZ8FJ+SVN2Fr+L7kiG/Z6w4P5O0Jus/Qr5EefHVeg== by the registry."""


def script(name: str) -> str:
    return Path(str(finders.find(name))).read_text()


def test_the_part_is_of_the_version_that_the_wheel_has() -> None:
    """With another wheel, take the file of the same version, and its digest."""
    versions = [re.findall(r"plotly\.js .*?v([\d.]+)", script(name)[:200]) for name in (CHART_LIBRARY, WHOLE_LIBRARY)]
    assert versions[0] == versions[1] != []
    assert hashlib.sha256(script(CHART_LIBRARY).encode()).hexdigest() == SHA256


@pytest.mark.parametrize("path", sorted(GOLDENS.glob("*.json")), ids=lambda path: path.stem)
def test_a_figure_that_is_not_declared_to_need_the_whole_library_is_drawn_by_its_part(path: Path) -> None:
    drawn = json.loads(path.read_text())
    kinds = FIGURES | COMPARISONS | MACHINES | SIMULATIONS
    of_figure = [kind for name, kind in kinds.items() if path.stem == name or path.stem.startswith(f"{name}-")]
    types = {trace["type"] for trace in drawn["data"]}
    assert types <= CARTESIAN or any(kind.whole for kind in of_figure)


def test_a_page_requests_the_whole_library_only_where_a_figure_needs_it() -> None:
    def asked(*names: str) -> str:
        text = "{% load paceline %}{% chart_library several=kinds %}"
        return Template(text).render(Context({"kinds": [FIGURES[name] for name in names]}))

    assert asked("batch-size", "heat-map").endswith(CHART_LIBRARY)
    assert asked("server-exchanges", "block-map").endswith(WHOLE_LIBRARY)


@pytest.mark.django_db
def test_a_report_carries_the_part_unless_it_has_a_map_of_blocks() -> None:
    part, whole = "plotly.js (cartesian - minified)", "* plotly.js v"
    with_map, without = (render_report(job) for job in (factories.demo_job(), factories.make_job()))
    assert (part in with_map, whole in with_map) == (False, True)
    assert (part in without, whole in without) == (True, False)


def priced(workers: int) -> dict[str, Any]:
    fast = waited().workers[0]
    each = tuple(replace(fast, rank=rank, label=f"w{rank}") for rank in range(workers))
    return waiting_price(replace(waited(), workers=each), View())


def test_bars_too_many_to_be_seen_apart_are_one_shape_for_each_phase() -> None:
    few, many = priced(MOST_BARS), priced(MOST_BARS + 1)
    assert {trace["type"] for trace in few["data"]} == {"bar", "scatter"}
    assert {trace["type"] for trace in many["data"]} == {"scatter"}
    assert [drawn["layout"]["xaxis"].get("nticks") for drawn in (few, many)] == [None, MOST_LABELS]
    for bars, band in zip(few["data"][:-1], many["data"][:-1], strict=True):  # the last has the diamonds
        assert (band["name"], band["y"][:MOST_BARS]) == (bars["name"], bars["y"])
        assert band.get("fillpattern") == bars["marker"].get("pattern")

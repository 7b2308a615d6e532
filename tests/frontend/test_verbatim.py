"""No name of a job, machine or policy becomes a link, an entity or a template in a figure."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.figures import COMPARISONS, FIGURES, MACHINES, SIMULATIONS
from frontend.figures.marks import marked
from frontend.figures.rows import Compared, Mark, View
from frontend.figures.verbatim import JOINER, untouched, verbatim
from tests.frontend.rows import learning
from tests.frontend.test_golden_figures import ROWS

HOSTILE = '<a href="https://x.example">y</a><br><extra>z</extra>&lt;b&gt;%{evil}'
NAMES = {"label", "name", "words", "reason", "policy", "barrier", "before_unknown", "acting", "baseline", "classes"}
"""Fields of rows that hold what people or machines wrote, or could."""

MARKUP = re.compile(rf"<(?!{JOINER})|&(?!{JOINER})")


def hostile(value: Any) -> Any:
    """The rows with hostile text behind each name."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {}
        for field in dataclasses.fields(value):
            found = getattr(value, field.name)
            if field.name not in NAMES:
                changes[field.name] = hostile(found)
            elif isinstance(found, str):
                changes[field.name] = f"{found}{HOSTILE}" if found else found
            elif isinstance(found, tuple) and found and isinstance(found[0], str):
                changes[field.name] = tuple(f"{each}{HOSTILE}" for each in found)
            else:
                changes[field.name] = hostile(found)
        return dataclasses.replace(value, **changes)
    if isinstance(value, list | tuple):
        return type(value)(map(hostile, value))
    if isinstance(value, dict):
        return {key: hostile(each) for key, each in value.items()}
    return value


def texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text that Plotly reads, with the name of its field."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, each in value.items():
            if name != "meta":
                yield from texts(each, name)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts(each, key)


def check(figure: dict[str, Any]) -> int:
    """Whether nothing in it acts; how many hostile texts were in it."""
    hit = 0
    for key, text in texts(verbatim(figure)):
        hit += "x.example" in text
        rest = text
        if key in {"hovertemplate", "texttemplate"}:
            rest = rest.removesuffix("<extra></extra>")
            assert "%{evil}" not in rest
        assert not MARKUP.search(rest), (key, text)
    return hit


KINDS = FIGURES | MACHINES | SIMULATIONS


@pytest.mark.parametrize("name", sorted(KINDS))
def test_no_name_in_a_figure_is_markup(name: str) -> None:
    kind = KINDS[name]
    for x in kind.x or ("",):
        check(kind.draw(hostile(ROWS[kind.rows]()), View(x=x)))


def test_some_of_these_figures_hold_names() -> None:
    drawn = {name: KINDS[name].draw(hostile(ROWS[KINDS[name].rows]()), View(x=KINDS[name].x[0])) for name in KINDS}
    assert {"others", "speed-by-batch", "simulated-iterations", "worker-speed"} <= {
        name for name, figure in drawn.items() if check(figure)
    }


@pytest.mark.parametrize("name", sorted(COMPARISONS))
def test_no_name_in_a_comparison_is_markup(name: str) -> None:
    jobs = [Compared(job=at, label=f"#{at} {HOSTILE}", learned=learning(), iteration_s=np.ones(3)) for at in (1, 2)]
    assert check(COMPARISONS[name].draw(jobs, View(x=COMPARISONS[name].x[0])))


def mark(words: str) -> Mark:
    return Mark(iteration=1.0, elapsed_s=1.0, samples=1.0, words=words)


def test_lines_between_marks_stay_and_those_within_them_are_text() -> None:
    figure = {"data": [{}], "layout": {"xaxis": {}}}
    marks = [mark(HOSTILE), mark("second")]
    text = verbatim(marked(figure, marks, View(x="iteration")))["data"][-1]["text"][0]
    assert [MARKUP.search(line) for line in text.split("<br>")] == [None, None]


@given(st.text(alphabet='<>&%{}"/=ab;#x'))
def test_what_is_made_inert_stays_so_and_reads_the_same(text: str) -> None:
    made = untouched(text)
    assert (untouched(made), made.replace(JOINER, "")) == (made, text)
    assert not MARKUP.search(made)
    assert "%{" not in made

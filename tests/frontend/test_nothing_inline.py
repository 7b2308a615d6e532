"""Templates without styles and code inline: the content security policy would block them."""

import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from hypothesis import given
from hypothesis import strategies as st

from frontend.finders import CHART_LIBRARY, WHOLE_LIBRARY
from frontend.templatetags.paceline import of
from tests.architecture.sources import ROOT


def test_each_length_has_its_rule() -> None:
    rules = Path(str(finders.find("paceline/css/lengths.css"))).read_text()
    found = {int(number): float(length) for number, length in re.findall(r'"(\d+)"\] { --of: ([\d.]+)%', rules)}
    assert found == {number: number / 4 for number in range(401)}


@given(part=st.floats(0, 1e12), whole=st.floats(1e-9, 1e12))
def test_a_length_is_within_an_eighth_of_a_per_cent(part: float, whole: float) -> None:
    assert abs(of(part, whole) / 4 - min(100, 100 * part / whole)) <= 0.125 + 1e-9


@pytest.mark.parametrize(("part", "whole"), [(1, 0), (-1, 2), (0, 0)])
def test_what_has_no_length_is_empty(part: float, whole: float) -> None:
    assert of(part, whole) == 0


def test_no_template_has_code_or_style_inline() -> None:
    """But for the report, which is one file."""
    pattern = r"""<style|<script(?![^>]*\ssrc=)|\sstyle=|\son\w+=|hx-on|javascript:"""
    templates = sorted((ROOT / "frontend" / "templates").rglob("*.html"))
    found = {path.name for path in templates if re.search(pattern, path.read_text())}
    assert found == {"report.html"}


def test_the_id_that_keeps_plotly_from_adding_styles_is_plotly_s() -> None:
    template = (ROOT / "frontend" / "templates" / "parts" / "chart_library.html").read_text()
    (element,) = re.findall(r'<meta id="(\w+)"', template)
    for library in (CHART_LIBRARY, WHOLE_LIBRARY):
        assert f'if(!document.getElementById("{element}"))' in Path(str(finders.find(library))).read_text()

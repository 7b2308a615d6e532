"""What Chromium takes to draw figures; where it or Playwright is missing, that is said."""

import shutil
import statistics
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

import msgspec

CHROMIUM: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


class Drawing(msgspec.Struct, kw_only=True, frozen=True):
    """What the browser adds to the first chart, in seconds."""

    library_s: float
    """To load and run the chart library, once per page."""
    draw_s: dict[str, float]
    """From a figure's JSON to its first frame, by its name; the median."""


PAGE: Final = """<!doctype html><body><script>window.began = performance.now();</script>
<script src="{library}"></script><script>window.took_s = (performance.now() - window.began) / 1000;</script></body>"""

DRAW: Final = """async text => {
  const began = performance.now();
  const {data, layout} = JSON.parse(text);
  const plot = document.body.appendChild(document.createElement('div'));
  plot.style.width = '640px';
  await Plotly.react(plot, data, {...layout, autosize: true}, {displayModeBar: false});
  await new Promise(requestAnimationFrame);
  const took = (performance.now() - began) / 1000;
  plot.remove();
  return took;
}"""


def missing() -> str:
    """Why there is no browser to measure with; empty where there is one."""
    if find_spec("playwright") is None:
        return "Playwright is not installed: pip install -r requirements/tests.txt"
    return "" if _executable() else "Chromium is not installed: apt-get install chromium"


def _executable() -> str | None:
    return next((found for name in CHROMIUM if (found := shutil.which(name))), None)


def draw(figures: Mapping[str, bytes], library: str, rounds: int = 3) -> Drawing:
    """Draw each figure's JSON on an empty page, ``library`` being the path of the chart library."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_executable(), args=FLAGS)
        try:
            page = browser.new_page()
            with NamedTemporaryFile("w", suffix=".html") as file:
                file.write(PAGE.format(library=Path(library).as_uri()))
                file.flush()
                page.goto(Path(file.name).as_uri())
            library_s = page.evaluate("window.took_s")
            took = {name: [page.evaluate(DRAW, body.decode()) for _ in range(rounds)] for name, body in figures.items()}
        finally:
            browser.close()
    return Drawing(library_s=library_s, draw_s={name: statistics.median(times) for name, times in took.items()})

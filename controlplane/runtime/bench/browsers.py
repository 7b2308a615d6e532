"""Chromium as benches use it: what it takes to draw figures, and what one page shows while its job runs."""

import asyncio
import shutil
import statistics
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

import msgspec

from controlplane.runtime.bench.usage import growth

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
INSTALL: Final = "Chromium is not installed: apt-get install chromium"
FLAGS: Final = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
SAMPLE_S: Final = 7.5
"""Between two looks at the heap, each after a collection, so that only what is held on to counts."""

DRAWN_S: Final = 60.0


class Drawing(msgspec.Struct, kw_only=True, frozen=True):
    """What the browser adds to the first chart, in seconds."""

    library_s: float
    """To load and run the chart library, once per page."""
    draw_s: dict[str, float]
    """From a figure's JSON to its first frame, by its name; the median."""


class Tab(msgspec.Struct, kw_only=True, frozen=True):
    """What was seen of one page of a running job."""

    shown: list[tuple[float, int]]
    """Wall clock in seconds, and the last iteration that the chart had from that frame on."""
    heap_mb: list[tuple[float, float]]
    """Seconds since the chart was drawn, and the live heap then."""

    @property
    def growth_mb_per_minute(self) -> float:
        """The slope of a line through the samples without the first quarter, which has caches to fill."""
        return growth(self.heap_mb)


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

WATCH: Final = """figure => {
  const plot = figure.querySelector('.plot');
  window.shown = [];
  const note = () => requestAnimationFrame(() => {
    const last = Math.max(...(plot._fullData ?? []).map(trace => trace.x?.at?.(-1) ?? -1));
    if (last >= 0 && window.shown.at(-1)?.[1] !== last) window.shown.push([Date.now() / 1000, last]);
  });
  plot.on('plotly_afterplot', note);
  note();
}"""
"""Each frame that shows another last iteration, with the wall clock at which it was painted."""


def chromium() -> str | None:
    """The path of Chromium's program, where there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def missing() -> str:
    """Why there is no browser to measure with; empty where there is one."""
    if find_spec("playwright") is None:
        return "Playwright is not installed: pip install -r requirements/tests.txt"
    return "" if chromium() else INSTALL


def draw(figures: Mapping[str, bytes], library: str, rounds: int = 3) -> Drawing:
    """Draw each figure's JSON on an empty page, ``library`` being the path of the chart library."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
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


async def watch(address: str, path: str, *, figure: str, cookie: str, seconds: float) -> Tab:
    """Look at a page for so long, and at one figure on it whose x axis counts iterations.

    ``cookie`` is the session of somebody who may look.
    """
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            context = await browser.new_context(base_url=address, viewport={"width": 1440, "height": 1200})
            await context.add_cookies([{"name": "sessionid", "value": cookie, "url": address}])
            page = await context.new_page()
            await page.goto(path)
            chart = page.locator(f"#figure-{figure}")
            await chart.scroll_into_view_if_needed()
            await chart.locator(".main-svg").first.wait_for(timeout=DRAWN_S * 1000)
            await chart.evaluate(WATCH)
            heap_mb = await _sample_heap(await context.new_cdp_session(page), seconds)
            shown = [(at, int(last)) for at, last in await page.evaluate("window.shown")]
        finally:
            await browser.close()
    return Tab(shown=shown, heap_mb=heap_mb)


async def _sample_heap(inspector: Any, seconds: float) -> list[tuple[float, float]]:
    samples, began = [], time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        await inspector.send("HeapProfiler.collectGarbage")
        used = await inspector.send("Runtime.getHeapUsage")
        samples.append((passed, used["usedSize"] / 2**20))
        await asyncio.sleep(min(SAMPLE_S, seconds - passed))
    return samples

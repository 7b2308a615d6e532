"""Chromium as benches use it: how soon pages show their first chart, and what one shows while its job runs."""

import asyncio
import shutil
import statistics
import time
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

import msgspec
from django.contrib.auth.models import User
from django.test import Client

from benchmarks.live.usage import growth

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
INSTALL: Final = "Chromium is not installed: apt-get install chromium"
FLAGS: Final = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
SAMPLE_S: Final = 7.5
"""Between two looks at the heap, each after a collection, so that only what is held on to counts."""

DRAWN_S: Final = 60.0
VIEWPORT: Final[Any] = {"width": 1440, "height": 1200}


class Visit(msgspec.Struct, kw_only=True, frozen=True):
    """Seconds from the click to a page's first chart or the words in its place, or to the page itself; medians."""

    first_s: float
    """Of somebody who was never here."""
    again_s: float
    """With what the browser has kept."""


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


DRAWN: Final = """() => {
  if (document.readyState === "loading") return null;
  const figure = document.querySelector("plotly-figure");
  if (!figure) return performance.getEntriesByName("first-contentful-paint")[0]?.startTime / 1000 || null;
  figure.scrollIntoView();
  const drawn = document.querySelector("plotly-figure .main-svg, plotly-figure .figure-empty:not([hidden])");
  return drawn ? performance.now() / 1000 : null;
}"""
"""Seconds since the page was asked for, as soon as its first figure, which may stand below the fold, is there; or what
it shows, where it has no figure."""

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


def session() -> str:
    """The session of somebody who may look at everything."""
    person, _ = User.objects.get_or_create(username="looker", defaults={"is_superuser": True})
    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(person)
    return str(client.cookies["sessionid"].value)


def visits(address: str, paths: Mapping[str, str], *, cookie: str, rounds: int = 3) -> dict[str, Visit]:
    """Open each page, by its name, as the first of a new browser profile, and once more; ``cookie`` as in ``watch``."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)

        def visit(path: str) -> tuple[float, float]:
            with browser.new_context(base_url=address, viewport=VIEWPORT) as context:
                context.add_cookies([{"name": "sessionid", "value": cookie, "url": address}])
                page = context.new_page()
                return opened(page, path), opened(page, path)

        def opened(page: Any, path: str) -> float:
            page.goto(path, wait_until="commit")
            return float(page.wait_for_function(DRAWN, timeout=DRAWN_S * 1000).json_value())

        try:
            seen = {name: [visit(path) for _ in range(rounds)] for name, path in paths.items()}
        finally:
            browser.close()
    return {
        name: Visit(
            first_s=statistics.median(first for first, _ in times),
            again_s=statistics.median(again for _, again in times),
        )
        for name, times in seen.items()
    }


async def watch(address: str, path: str, *, figure: str, cookie: str, seconds: float) -> Tab:
    """Look at a page for so long, and at one figure on it whose x axis counts iterations.

    ``cookie`` is the session of somebody who may look.
    """
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            context = await browser.new_context(base_url=address, viewport=VIEWPORT)
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

"""Chromium for benchmarks: when pages show their first chart, and what a page shows while its job runs."""

import asyncio
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
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
"""Interval of heap samples, each after a garbage collection, so that only live objects count."""

DRAWN_S: Final = 60.0
SETTLED_MS: Final = 1_500
"""How long to wait for further visible figures after the first chart."""

VIEWPORT: Final[Any] = {"width": 1440, "height": 1200}


class Opening(msgspec.Struct, kw_only=True, frozen=True):
    """An opened page: times in seconds from the click, and transferred bytes."""

    shown_s: float
    """Time to its first chart or the text in its place, or to a page without charts."""
    words_s: float | None
    """Time to a job's verdict, lanes and tiles, if the page has them."""
    wire_bytes: int
    """Compressed bytes of all responses, headers included."""


class Visit(msgspec.Struct, kw_only=True, frozen=True):
    """Medians over several rounds."""

    first: Opening
    """The first visit."""
    again: Opening
    """A later visit, with the browser's cache."""


class Tab(msgspec.Struct, kw_only=True, frozen=True):
    """Measurements of one page of a running job."""

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

WORDS: Final = """() => {
  const look = () => {
    const parts = ["#job-lanes .verdict", "#job-lanes table.lanes tbody tr", "#job-facts"];
    if (parts.every(each => document.querySelector(each))) window.wordsShown = performance.now() / 1000;
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""
"""Notes the frame that first has a job's verdict, lanes and tiles; frames wait for styles."""

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
    """The path of Chromium, if it is installed."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def missing() -> str:
    """Why there is no browser to measure with; empty if there is one."""
    if find_spec("playwright") is None:
        return "Playwright is not installed: pip install -r requirements/tests.txt"
    return "" if chromium() else INSTALL


def session() -> str:
    """The session of a user who may see everything."""
    person, _ = User.objects.get_or_create(username="looker", defaults={"is_superuser": True})
    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(person)
    return str(client.cookies["sessionid"].value)


def visits(address: str, paths: Mapping[str, str], *, cookie: str, rounds: int = 3) -> dict[str, Visit]:
    """Open each page, by its name, as the first of a new browser profile, and once more; ``cookie`` as in ``watch``."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)

        def visit(path: str) -> tuple[Opening, Opening]:
            with browser.new_context(base_url=address, viewport=VIEWPORT) as context:
                context.add_cookies([{"name": "sessionid", "value": cookie, "url": address}])
                page = context.new_page()
                page.add_init_script(f"({WORDS})()")
                return opened(page, path), opened(page, path)

        try:
            seen = {name: [visit(path) for _ in range(rounds)] for name, path in paths.items()}
        finally:
            browser.close()
    return {
        name: Visit(first=median([first for first, _ in both]), again=median([again for _, again in both]))
        for name, both in seen.items()
    }


def opened(page: Any, path: str) -> Opening:
    """Open it, wait for its first chart, and for what else it loads."""
    received: list[float] = []
    inspector = page.context.new_cdp_session(page)
    inspector.send("Network.enable")
    inspector.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
    page.goto(path, wait_until="commit")
    shown_s = float(page.wait_for_function(DRAWN, timeout=DRAWN_S * 1000).json_value())
    page.wait_for_load_state("load")
    page.wait_for_timeout(SETTLED_MS)
    inspector.detach()
    return Opening(shown_s=shown_s, words_s=page.evaluate("window.wordsShown ?? null"), wire_bytes=round(sum(received)))


def median(openings: Sequence[Opening]) -> Opening:
    """Of several rounds."""
    words_s = [each.words_s for each in openings if each.words_s is not None]
    return Opening(
        shown_s=statistics.median(each.shown_s for each in openings),
        words_s=statistics.median(words_s) if words_s else None,
        wire_bytes=round(statistics.median(each.wire_bytes for each in openings)),
    )


async def watch(address: str, path: str, *, figure: str, cookie: str, seconds: float) -> Tab:
    """Look at a page for so long, and at one figure on it whose x axis counts iterations.

    ``cookie`` is the session of someone who may look.
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

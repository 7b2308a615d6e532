"""The pictures of README and docs, taken from a running demo: ``python -m tests.browser.portraits LOGIN_LINK``.

Start ``make demo`` on a machine that does nothing else, wait for its table, and give the link that it printed, or a
newer one: it holds for five minutes. Nothing is made up: the pages of its two jobs, the second under LB-BSP.
"""

import sys
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from playwright.sync_api import Page, sync_playwright

from benchmarks.live.browsers import FLAGS, INSTALL, chromium

FOLDER = Path(__file__).parents[2] / "docs" / "images"
DEADLINE_MS = 120_000
SETTLE_MS = 1_000
"""For the last frame of a chart."""

PAGES = {
    "job": "/jobs/2/",
    "timeline": "/jobs/2/?tab=timeline&first-timeline=0",
    "heat-map": "/jobs/2/?tab=heatmap",
    "decisions": "/jobs/2/?tab=decisions&decisions=shares",
    "comparison": "/compare/?jobs=1,2",
}
HEIGHT = 1000
"""Of the window, at most: a page that is shorter has a shorter picture."""

THEMES: dict[str, tuple[Literal["light", "dark"], ...]] = {"job": ("light", "dark")}
"""Of README's first picture, which follows its reader's system; all others are light."""


def take(page: Page, address: str, name: str) -> Path:
    """What the window shows of that page, once every chart in it is drawn."""
    page.set_viewport_size({"width": 1440, "height": HEIGHT})
    page.goto(address)
    for figure in page.locator("plotly-figure").all()[:2]:
        figure.locator(".main-svg, .figure-empty:not([hidden])").first.wait_for()
    page.wait_for_timeout(SETTLE_MS)
    needed = page.evaluate("document.querySelector('main').offsetHeight") + 20
    page.set_viewport_size({"width": 1440, "height": min(needed, HEIGHT)})
    page.wait_for_timeout(SETTLE_MS)
    path = FOLDER / f"{name}.png"
    page.screenshot(path=path)
    return path


def main(link: str) -> None:
    """Sign in, and take them all."""
    if (path := chromium()) is None:
        sys.exit(INSTALL)
    base = urlsplit(link)._replace(path="", query="", fragment="").geturl()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        context = browser.new_context(reduced_motion="reduce")
        context.set_default_timeout(DEADLINE_MS)
        page = context.new_page()
        page.goto(link)
        for name, place in PAGES.items():
            for theme in THEMES.get(name, ("light",)):
                page.emulate_media(color_scheme=theme)
                ending = "" if theme == "light" else f"-{theme}"
                sys.stdout.write(f"{take(page, base + place, name + ending)}\n")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])

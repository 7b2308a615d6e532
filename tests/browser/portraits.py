"""The picture of README, taken from a running demo: ``python -m tests.browser.portraits LOGIN_LINK``.

Start ``make demo``, wait for its table, and give the link that it printed, or a newer one: it holds for five minutes.
Nothing is made up: it is the page of the second job, which ran under LB-BSP.
"""

import sys
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Page, sync_playwright

from controlplane.runtime.bench.browsers import FLAGS, INSTALL, chromium

FOLDER = Path(__file__).parents[2] / "docs" / "images"
DEADLINE_MS = 120_000
SETTLE_MS = 1_000
"""For the last frame of a chart."""

PAGES = {"job": "/jobs/2/"}


def take(page: Page, address: str, name: str) -> Path:
    """What the window shows of that page, once every chart in it is drawn."""
    page.goto(address)
    for figure in page.locator("plotly-figure").all()[:2]:
        figure.locator(".main-svg, .figure-empty:not([hidden])").first.wait_for()
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
        context = browser.new_context(viewport={"width": 1440, "height": 1000}, reduced_motion="reduce")
        context.set_default_timeout(DEADLINE_MS)
        page = context.new_page()
        page.goto(link)
        for name, place in PAGES.items():
            sys.stdout.write(f"{take(page, base + place, name)}\n")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])

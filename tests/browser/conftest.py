"""Real Chromium on real pages: the whole web process in a thread, and every console error a failure."""

import asyncio
import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from playwright.sync_api import Browser, Page, expect, sync_playwright

from benchmarks.live.browsers import FLAGS, INSTALL, chromium
from controlplane.telemetry.models import Simulation
from controlplane.telemetry.simulations import simulation_run, simulation_submit

WIDE, NARROW = 1440, 400
PASSWORD = "pace-line-1"
DEADLINE_MS = 30_000
expect.set_options(timeout=DEADLINE_MS)

Look = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for the tests of one module: while Playwright runs, its thread counts as one with an event loop."""
    if (path := chromium()) is None:
        pytest.skip(INSTALL)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """A request that a page breaks off when it is left never closes its body's file: collected here, not at exit."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def _orm_beside_playwright(monkeypatch: pytest.MonkeyPatch) -> None:
    """Django sees Playwright's event loop and would refuse the test's own queries; nothing here is concurrent."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


@pytest.fixture
def site(_orm_beside_playwright: None, transactional_db: None, redis_url: str, static_files: None) -> Iterator[str]:
    """The web process, over the test's database and Redis; its address."""
    from controlplane.config.asgi import application
    from controlplane.gateway.hub import close_hub

    cache.clear()
    config = uvicorn.Config(application, host="127.0.0.1", port=0, lifespan="off", log_level="warning")
    server = uvicorn.Server(config)
    started = threading.Event()

    async def serve() -> None:
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        started.set()
        await serving
        await close_hub()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="web")
    thread.start()
    assert started.wait(60)
    host, port = server.servers[0].sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        thread.join(60)


@pytest.fixture
def ada(_orm_beside_playwright: None, transactional_db: None) -> User:
    """An admin."""
    return User.objects.create_user("ada", password=PASSWORD, is_superuser=True)


@pytest.fixture
def simulation(ada: User) -> Simulation:
    """One whose policies have both come to an end."""
    row = simulation_submit(scenario="demo", policies=["bsp", "lb-bsp-linear"], seed=3, user=ada)
    simulation_run(row.pk)
    return row


@pytest.fixture
def errors() -> Iterator[list[str]]:
    """What the browser complains of; a test that expects a complaint takes it out."""
    complaints: list[str] = []
    yield complaints
    assert complaints == []


@pytest.fixture
def look(browser: Browser, errors: list[str], request: pytest.FixtureRequest) -> Iterator[Look]:
    """Opens pages in contexts of their own, of a width and colour scheme, signed in as someone or no one."""
    contexts = []

    def opened(base: str, *, user: User | None = None, theme: str = "light", width: int = WIDE) -> Page:
        context = browser.new_context(
            base_url=base, color_scheme=theme, viewport={"width": width, "height": 900}, reduced_motion="reduce"
        )
        contexts.append(context)
        if user is not None:
            context.add_cookies([{"name": "sessionid", "value": _session(user), "url": base}])
        context.set_default_timeout(DEADLINE_MS)
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        return page

    yield opened
    if hasattr(request.node, "failed_call"):
        request.node.failed_call.sections += [_seen(page) for context in contexts for page in context.pages]
    for context in contexts:
        context.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Hand a failure's report to the fixture whose pages it is to show."""
    report = yield
    if report.when == "call" and report.failed:
        item.failed_call = report
    return report


def _seen(page: Page) -> tuple[str, str]:
    """What a page shows when its test fails: a section of the failure's report."""
    return f"Page {page.url}", page.inner_text("body")


def _session(user: User) -> str:
    client = Client()
    client.force_login(user)
    value: str = client.cookies["sessionid"].value
    return value


LOOKS = ["color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size"]
"""The rules of axe whose answers depend on theme and width; all others are about the document."""


DRAWN = ".main-svg"
"""What Plotly draws, thousands of elements: a chart has a name and a table, and its colours have tests of their own."""


def axe_findings(page: Page, *, rules: list[str] | None = None, within: str = "html") -> list[str]:
    """What axe finds serious or critical on the page, one line each; by some rules only, or within one element only."""
    from axe_playwright_python.sync_playwright import Axe

    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": rules}
    found: list[dict[str, Any]] = (
        Axe().run(page, context={"include": [within], "exclude": [DRAWN]}, options=options).response["violations"]
    )
    return [
        f"{finding['id']}: {finding['help']} ({', '.join(str(node['target']) for node in finding['nodes'][:3])})"
        for finding in found
        if finding["impact"] in {"serious", "critical"}
    ]

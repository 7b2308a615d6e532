"""An operator's day with one live job of real processes: losses, a restarted service, controls, views, what is kept."""

import base64
import csv
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Look
from tests.support.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.integration]

SLOW_MS = 60_000
STALE = re.compile(r"^Stale \(last data \d\d:\d\d:\d\d\)$")
MEASURED_THEN = re.compile(r"[1-9][\d.,]* samples/s as of \d\d:\d\d:\d\d")
SPEEDS = (80, 80, 80, 50)
"""Samples/s: a chart shows every iteration of this job for ten minutes."""
RESTARTS = 1

PLOT = "document.querySelector('#figure-batch-size .plot')"
TRACE = f"(name => {PLOT}?._fullData?.find(each => each.name === name))"
LINES = rf"({PLOT}?._fullData ?? []).filter(each => /^w\d+$/.test(each.name) && each.x?.length)"
PNG_PX = (2_400, 1_080)

READ_PICTURE = """async source => {
  const picture = new Image();
  picture.src = source;
  await picture.decode();
  const canvas = Object.assign(document.createElement('canvas'), {width: picture.width, height: picture.height});
  const context = canvas.getContext('2d');
  context.drawImage(picture, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, picture.width, picture.height).data.buffer);
  return {size: [picture.width, picture.height], colours: new Set(pixels).size};
}"""

Watch = Callable[[str], Page]


@pytest.fixture(scope="module")
def jobs(stack: Stack) -> Iterator[dict[str, int]]:
    """The job of these tests by its control plane's address: the plane may have been replaced since."""
    found: dict[str, int] = {}
    yield found
    number = found.get(stack.url)
    if number is not None and not stack.job(number)["is_over"]:
        stack.stop(number)


@pytest.fixture
def job(stack: Stack, jobs: dict[str, int]) -> int:
    """A job of four workers and two servers that runs until its tests are over, also where a failed test left it paused
    or ended it.
    """
    if stack.url not in jobs or stack.job(jobs[stack.url])["is_over"]:
        number: int = stack.submit(
            name="live",
            stop={"iterations": 100_000},
            elastic={"restarts": RESTARTS},
            emulate=[{"samples_per_second": speed} for speed in SPEEDS],
        )["id"]
        jobs[stack.url] = number
        stack.kept.add(number)
        stack.await_iteration(number, 5)
    elif stack.job(jobs[stack.url])["state"] == "paused":
        stack.ask("POST", f"/api/v1/jobs/{jobs[stack.url]}/actions/resume")
        stack.await_iteration(jobs[stack.url], stack.job(jobs[stack.url])["iteration"] + 1)
    return jobs[stack.url]


@pytest.fixture(scope="module")
def sessions() -> dict[str, list[Any]]:
    """The cookies of whoever has signed in, by the control plane's address."""
    return {}


@pytest.fixture
def cookies(browser: Browser, stack: Stack, sessions: dict[str, list[Any]]) -> list[Any]:
    """What the browser has once someone has signed in."""
    if stack.url not in sessions:
        with browser.new_context(base_url=stack.url) as context:
            page = context.new_page()
            page.goto("/login/")
            page.get_by_label("User name").fill(stack.user)
            page.get_by_label("Password").fill(stack.password)
            page.get_by_role("button", name="Sign in").click()
            expect(page.locator("#machine-cards")).to_be_visible()
            sessions[stack.url] = list(context.cookies())
    return sessions[stack.url]


@pytest.fixture
def watch(stack: Stack, look: Look, cookies: list[Any]) -> Watch:
    """Opens an address, signed in, and waits until the page is live."""
    page = look(stack.url)
    page.context.add_cookies(cookies)
    page.context.set_default_timeout(SLOW_MS)

    def opened(address: str) -> Page:
        page.goto(address)
        expect(page.locator("#freshness-chip")).to_have_text("Live", timeout=SLOW_MS)
        return page

    return opened


def process_of(job: int, title: str) -> psutil.Process:
    """The newest process of that worker among those that this test run has started: others may have a job 1 too."""
    name = f"pl {title} job {job}"[:15]
    mine = [each for each in psutil.Process().children(recursive=True) if each.is_running() and each.name() == name]
    return max(mine, key=lambda process: process.create_time())


def row(page: Page, title: str) -> Any:
    """The line of that process."""
    return page.locator("#job-processes tbody tr").filter(has=page.locator(f"#drain-{title}, #include-{title}"))


def requested(page: Page, what: str) -> Any:
    """The notice of that request; those of earlier tests may still be under way."""
    return page.locator("#job-requests .notice").filter(has_text=what)


def confirm(page: Page, button: str, *, naming: str, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Press a button, read what it asks, and agree."""
    page.locator(button).click()
    expect(page.locator("#ask-dialog")).to_contain_text(naming)
    meanwhile()
    page.locator("#ask-confirm").click()
    expect(page.locator("#ask-dialog")).to_be_hidden()


def await_points(page: Page, beyond: int) -> list[int]:
    """The iterations with points, once the chart goes beyond that one: no line has one twice, and none is left out.

    A worker that a busy machine cost its life has no points until it is back; the others have.
    """
    last = f"Math.max(-1, ...{LINES}.map(line => line.x[line.x.length - 1]))"
    page.wait_for_function(f"least => {last} >= least", arg=beyond, timeout=SLOW_MS)
    lines = [[int(x) for x in line] for line in page.evaluate(f"{LINES}.map(line => Array.from(line.x))")]
    assert all(line == sorted(set(line)) for line in lines)
    drawn = sorted(set().union(*lines))
    assert drawn == list(range(len(drawn)))
    return drawn


def await_redrawn(page: Page) -> None:
    """The other charts have been drawn again, twice."""
    others = "plotly-figure:not(#figure-batch-size) .plot"
    drawn = f"[...document.querySelectorAll('{others}')].flatMap(each => each._fullData ?? [])"
    count = f"{drawn}.reduce((sum, each) => sum + (each.x?.length ?? 0), 0)"
    for _ in range(2):
        page.wait_for_function(f"before => {count} > before", arg=page.evaluate(count), timeout=SLOW_MS)


def await_mark(page: Page, words: str) -> None:
    """A mark on the chart says so."""
    page.wait_for_function(
        f"words => {TRACE}('Decisions')?.text.some(each => each.includes(words))", arg=words, timeout=SLOW_MS
    )


@contextmanager
def held(stack: Stack, name: str) -> Iterator[None]:
    """That service stands still, so that nothing is answered meanwhile."""
    parent = psutil.Process(stack.service(name).process.pid)
    family = [parent, *parent.children(recursive=True)]
    for process in family:
        process.suspend()
    try:
        yield
    finally:
        for process in family:
            process.resume()


def test_a_new_credential_is_pending_until_the_machine_has_kept_it_and_its_work_continues(
    job: int, stack: Stack, watch: Watch
) -> None:
    (machine,) = stack.ask("GET", "/api/v1/agents")["results"]
    (file,) = (stack.folder / "agent").glob("agent-*/credential.json")
    before, agent = file.read_text(), psutil.Process(stack.service("agent machines").process.pid)
    lives = {row["instance"] for row in stack.ask("GET", f"/api/v1/jobs/{job}/processes")["results"]}
    page = watch(f"/workers/{machine['id']}/")
    try:
        # Only a machine that is online gets a new one, and a suspended one is offline within seconds.
        confirm(page, "#rotate", naming="Rotate the credential of machines?", meanwhile=agent.suspend)
        expect(page.locator("#credential")).to_contain_text(
            "The old credential stays valid until machines has acknowledged"
        )
    finally:
        agent.resume()
    expect(page.locator("#credential")).to_contain_text("and acknowledged.", timeout=SLOW_MS)
    assert file.read_text() != before
    page.goto("/audit/?action=agent-rotate")
    expect(page.locator("tbody tr").first).to_contain_text(stack.user)
    stack.await_iteration(job, stack.job(job)["iteration"] + 10)
    assert lives == {row["instance"] for row in stack.ask("GET", f"/api/v1/jobs/{job}/processes")["results"]}


def test_pages_report_that_they_show_what_was_while_history_stalls(job: int, stack: Stack, watch: Watch) -> None:
    stack.await_iteration(job, 25)
    page = watch(f"/jobs/{job}/")
    chip, notice = page.locator("#freshness-chip"), page.locator("#history-notice")
    throughput = page.locator("#job-facts .facts > div", has_text="Throughput")
    pid = stack.service("history").process.pid
    with held(stack, "history"):
        expect(chip).to_have_text(STALE, timeout=SLOW_MS)
        expect(notice).to_contain_text(f"pages show job {job} as of")
        expect(notice).to_contain_text(f"process {pid} on ", timeout=SLOW_MS)
        expect(notice).to_contain_text(f"kill -9 {pid}")
        # Longer than any job may be silent before it counts as making nothing.
        page.wait_for_function(
            "() => Number(document.querySelector('#data-age data').dataset.waits) > 13", timeout=SLOW_MS
        )
        page.reload()
        expect(chip).to_have_text(STALE, timeout=SLOW_MS)
        expect(throughput).to_contain_text(MEASURED_THEN)
        page.goto("/")
        expect(chip).to_have_text(STALE, timeout=SLOW_MS)
        expect(page.locator(".tile", has_text="Throughput")).to_contain_text(MEASURED_THEN)
        expect(notice).to_contain_text(f"kill -9 {pid}")
        assert f"kill -9 {pid}" in stack.ask("GET", "/readyz")["warnings"][0]
    expect(chip).to_have_text("Live", timeout=SLOW_MS)
    expect(notice).to_be_empty()
    page = watch(f"/jobs/{job}/")
    expect(notice).to_be_empty()
    expect(throughput).not_to_contain_text("as of")


def test_a_killed_worker_comes_back_and_one_that_is_lost_reports_why(job: int, watch: Watch) -> None:
    page = watch(f"/jobs/{job}/?tab=processes")
    os.kill(process_of(job, "w1").pid, signal.SIGKILL)
    expect(row(page, "w1")).to_contain_text("instance 2", timeout=SLOW_MS)
    expect(row(page, "w1").locator(".state-ready")).to_be_visible(timeout=SLOW_MS)
    expect(row(page, "w1")).to_contain_text("was ended by signal 9; restart 1 of 1")
    os.kill(process_of(job, "w1").pid, signal.SIGKILL)
    expect(row(page, "w1").locator(".state-lost")).to_be_visible(timeout=SLOW_MS)
    expect(row(page, "w1")).to_contain_text("was ended by signal 9; it was started again once")
    watch("/")
    card = page.locator("#machine-cards .loss").filter(has_text=f"w1 of job {job}")
    expect(card.first.locator(".state-lost")).to_have_text("lost")
    expect(card.first).to_contain_text("was ended by signal 9; it was started again once")
    expect(page.locator("#events")).to_contain_text("w1 is lost")
    watch(f"/jobs/{job}/?tab=processes")
    confirm(page, "#include-w1", naming=f"Include w1 in job #{job} again?")
    expect(row(page, "w1").locator(".state-ready")).to_be_visible(timeout=SLOW_MS)
    expect(row(page, "w1")).to_contain_text("instance 3")
    watch(f"/jobs/{job}/")
    await_mark(page, "w1 is lost: was ended by signal 9; restart 1 of 1")
    await_mark(page, "w1 is ready")


def test_a_restart_of_the_service_leaves_no_gap_and_no_double_point(
    job: int, stack: Stack, watch: Watch, errors: list[str]
) -> None:
    page = watch(f"/jobs/{job}/")
    before = await_points(page, 5)
    stack.kill("web")
    expect(page.locator("#freshness")).to_have_attribute("data-state", "reconnecting", timeout=SLOW_MS)
    stack.restart("web")
    expect(page.locator("#freshness-chip")).to_have_text("Live", timeout=SLOW_MS)
    after = await_points(page, before[-1] + 5)
    assert after == list(range(len(after)))
    expect(page.locator("#figure-batch-size .figure-error")).to_be_hidden()
    # A cut connection is all that the browser has to complain of.
    assert [each for each in errors if not is_of_a_cut_connection(each)] == []
    errors.clear()


def is_of_a_cut_connection(complaint: str) -> bool:
    """The socket's, a request's that was under way, or htmx's own about that request."""
    return (
        re.match(r"WebSocket |Failed to load resource: net::ERR_|htmx:(afterRequest|sendError)", complaint) is not None
    )


def test_a_pause_is_pending_until_it_is_acknowledged_and_the_audit_names_who(
    job: int, stack: Stack, watch: Watch
) -> None:
    page = watch(f"/jobs/{job}/")
    with held(stack, "decisions"):
        confirm(page, "#job-pause", naming=f"Pause job #{job}, live?")
        expect(page.locator("#job-requests [data-stage=pending]")).to_contain_text(
            f"Pending: pause requested by {stack.user}", timeout=SLOW_MS
        )
        expect(page.locator("h1 .state")).to_have_text("running")
    expect(page.locator("h1 .state")).to_have_text("paused", timeout=SLOW_MS)
    expect(requested(page, "pause")).to_have_count(0, timeout=SLOW_MS)
    confirm(page, "#job-resume", naming=f"Resume job #{job}, live?")
    expect(page.locator("h1 .state")).to_have_text("running", timeout=SLOW_MS)
    page.goto("/audit/?action=job-pause")
    expect(page.locator("tbody tr").filter(has_text=f"job {job}")).to_contain_text(stack.user)


def test_an_excluded_worker_is_gone_until_it_is_taken_back(job: int, stack: Stack, watch: Watch) -> None:
    page = watch(f"/jobs/{job}/?tab=processes")
    with held(stack, "decisions"):
        confirm(page, "#exclude-w2", naming="Its process is stopped immediately and not restarted")
        expect(requested(page, "exclude w2")).to_contain_text("Pending:", timeout=SLOW_MS)
    expect(page.locator("#include-w2")).to_be_visible(timeout=SLOW_MS)
    expect(requested(page, "exclude w2")).to_have_count(0, timeout=SLOW_MS)
    confirm(page, "#include-w2", naming="takes part from the next iteration")
    expect(row(page, "w2").locator(".state-ready")).to_be_visible(timeout=SLOW_MS)
    expect(requested(page, "include w2")).to_have_count(0, timeout=SLOW_MS)


def test_a_zoom_outlives_new_data_and_an_address_shows_it_again(job: int, watch: Watch) -> None:
    page = watch(f"/jobs/{job}/?ranks=0,3&marks=off")
    seen = await_points(page, 5)
    area = page.locator("#figure-batch-size .nsewdrag").first
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 31)
    held = page.evaluate(f"{TRACE}('w0').x.length")
    await_redrawn(page)
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 32, steps=4)
    assert page.evaluate(f"{TRACE}('w0').x.length") == held
    page.mouse.up()
    expect(page.get_by_label("Follow")).not_to_be_checked()
    zoomed = page.evaluate(f"{PLOT}.layout.xaxis.range")
    await_points(page, seen[-1] + 5)
    assert page.evaluate(f"{PLOT}.layout.xaxis.range") == zoomed
    address = page.url
    page.get_by_role("link", name="Processes").click()
    expect(page.locator("#job-processes")).to_be_visible()
    page.go_back()
    assert shown(page, seen[-1]) == (pytest.approx(zoomed, abs=1e-3), ["w0", "w3"])
    assert page.url == address
    other = page.context.new_page()
    page.close()
    other.goto(address)
    assert shown(other, seen[-1]) == (pytest.approx(zoomed, abs=1e-3), ["w0", "w3"])
    expect(other.get_by_label("Follow")).not_to_be_checked()
    other.get_by_label("Follow").check()
    other.wait_for_function(f"() => {PLOT}.layout.xaxis.autorange === true")
    assert "range=" not in other.url


def shown(page: Page, beyond: int) -> tuple[list[float], list[str]]:
    """Which stretch, and which lines."""
    await_points(page, beyond)
    return page.evaluate(f"{PLOT}.layout.xaxis.range"), page.evaluate(f"{PLOT}._fullData.map(each => each.name)")


def test_what_is_exported_is_what_was_measured(job: int, stack: Stack, watch: Watch) -> None:
    page = watch(f"/jobs/{job}/")
    await_points(page, 25)
    stack.ask("POST", f"/api/v1/jobs/{job}/actions/stop")
    expect(page.locator("#freshness-chip")).to_have_text("Finished", timeout=SLOW_MS)
    await_points(page, 5)
    heads, *rows = csv.reader(exported(page, "CSV (chart data)").decode().splitlines())
    assert heads == ["iteration", "w0", "w1", "w2", "w3"]
    assert len(rows) > 20
    # Of the last iterations the chart may have some workers' reports and not yet the others'.
    assert rows[:-2] == measured(stack, job)[: len(rows) - 2]
    raw = csv.DictReader(exported(page, "CSV (raw reports)").decode().splitlines())
    assert [each["samples"] for each in raw if each["iteration"] == rows[0][0]] == rows[0][1:]
    assert f"Batch size \N{MIDDLE DOT} live #{job}" in exported(page, "SVG").decode()
    picture = exported(page, "PNG")
    read = page.evaluate(READ_PICTURE, f"data:image/png;base64,{base64.b64encode(picture).decode()}")
    assert tuple(read["size"]) == PNG_PX
    assert read["colours"] > len(SPEEDS)


def measured(stack: Stack, job: int) -> list[list[str]]:
    """The samples of each worker by iteration, as the API gives them, in the form of a CSV file."""
    series = stack.ask("GET", f"/api/v1/jobs/{job}/metrics?metric=samples&points=10000")["series"]
    assert [each["worker"] for each in series] == list(range(len(SPEEDS)))
    assert not any(each["thinned"] for each in series)
    columns = [dict(zip(each["iterations"], each["values"], strict=True)) for each in series]
    iterations = sorted(set().union(*columns))
    return [[str(k), *(f"{column[k]:g}" if k in column else "" for column in columns)] for k in iterations]


def exported(page: Page, form: str) -> bytes:
    """The file that the chart's menu gives."""
    figure = page.locator("#figure-batch-size")
    figure.get_by_text("Export", exact=True).click()
    with page.expect_download() as download:
        figure.get_by_role("button", name=form, exact=True).click()
    return download.value.path().read_bytes()

"""One range for all charts of a page: drawn in one, chosen in the list, or read from a link."""

import re

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job
from tests.browser.conftest import Look
from tests.frontend import factories

pytestmark = pytest.mark.browser

RANGE = "(document.querySelector('#figure-{} .plot')._fullLayout?.xaxis?.range ?? [])"


@pytest.fixture
def job(ada: User, redis_url: str) -> Job:
    return factories.demo_job(user=ada)


def drawn(page: Page, *names: str) -> None:
    """All of them are in the window, and drawn."""
    page.set_viewport_size({"width": 1440, "height": 2200})
    for name in names:
        page.locator(f"#figure-{name} .main-svg").first.wait_for()


def drag(page: Page, name: str, start: float, end: float) -> None:
    box = page.locator(f"#figure-{name} .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * start, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * end, box["y"] + 32, steps=4)
    page.mouse.up()


def shows(page: Page, name: str, low: float, high: float, within: float) -> None:
    text = RANGE.format(name)
    page.wait_for_function(f"() => Math.abs({text}[0] - {low}) < {within} && Math.abs({text}[1] - {high}) < {within}")


def test_a_zoom_in_one_chart_is_the_range_of_all(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/")
    drawn(page, "batch-size", "iteration-time", "convergence")
    drag(page, "batch-size", 0.25, 0.75)
    low, high = page.evaluate(RANGE.format("batch-size"))
    shows(page, "iteration-time", low, high, 0.01)
    expect(page.locator("#chart-range")).to_have_value(re.compile("^iteration:"))
    expect(page.get_by_label("Follow")).not_to_be_checked()
    # 10 iterations of 0.264 s, then 0.102 s each: the same stretch of the job, in seconds.
    shows(page, "convergence", 2.64 + 0.102 * (low - 9), 2.64 + 0.102 * (high - 9), 0.4)
    address = page.url
    page.locator("#chart-range").select_option("")
    page.wait_for_function(f"() => {RANGE.format('iteration-time')}[1] > 55")
    assert "range=" not in page.url
    page.goto(address)
    drawn(page, "iteration-time")
    shows(page, "iteration-time", low, high, 0.01)


def test_the_pointer_in_one_chart_is_marked_in_the_others(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/")
    drawn(page, "batch-size", "iteration-time")
    hair = page.locator("#figure-iteration-time .crosshair")
    expect(hair).to_have_count(0)
    point_at(page, "batch-size", 0.4)
    expect(hair).to_be_visible()
    expect(page.locator("#figure-batch-size .crosshair")).to_have_count(0)
    low, high = page.evaluate(RANGE.format("batch-size"))
    assert abs(marked(page, "iteration-time") - (low + 0.4 * (high - low))) < 1.5
    point_at(page, "batch-size", 1.2)
    expect(hair).to_be_hidden()


def point_at(page: Page, name: str, part: float) -> None:
    box = page.locator(f"#figure-{name} .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * part, box["y"] + 40, steps=4)


def marked(page: Page, name: str) -> float:
    """Where the line is on the chart's own axis."""
    found: float = page.evaluate(
        f"""() => {{
          const chart = document.querySelector("#figure-{name}"), plot = chart.querySelector(".plot");
          const axis = plot._fullLayout.xaxis;
          return axis.p2d(parseFloat(chart.querySelector(".crosshair").style.left) - plot.offsetLeft - axis._offset);
        }}"""
    )
    return found


def test_the_last_minute_is_the_same_on_every_axis(site: str, look: Look, ada: User, job: Job) -> None:
    factories.make_reports(job, [factories.Pace(shares=(930, 930, 470, 230))] * 100, first=60)
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/?axis=iteration")
    drawn(page, "batch-size", "convergence")
    page.locator("#chart-range").select_option("last:60")
    page.wait_for_function(f"() => {RANGE.format('batch-size')}[0] > 90")
    low, high = page.evaluate(RANGE.format("batch-size"))
    shows(page, "convergence", low, high, 0.01)
    expect(page.get_by_label("Follow")).to_be_checked()


def test_one_axis_for_all_charts(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/")
    drawn(page, "batch-size", "convergence")
    page.locator('#chart-view [name="axis"]').select_option("samples")
    title = "document.querySelector('#figure-{} .plot').layout?.xaxis?.title?.text"
    for name in ("batch-size", "iteration-time", "convergence"):
        page.wait_for_function(f"() => {title.format(name)}?.startsWith('Samples')")
    page.locator('#chart-view [name="axis"]').select_option("")
    page.wait_for_function(f"() => {title.format('convergence')} === 'Time since start (s)'")


def test_charts_of_a_machine_zoom_together(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/workers/{Agent.objects.latest('pk').pk}/")
    names = [
        name
        for name in page.locator("plotly-figure").evaluate_all("all => all.map(each => each.getAttribute('name'))")
        if name != "speed-by-batch"
    ]
    drawn(page, "load")
    page.locator(f"#figure-{names[1]}").scroll_into_view_if_needed()
    drawn(page, names[1])
    page.locator("#figure-load").scroll_into_view_if_needed()
    drag(page, "load", 0.25, 0.75)
    page.wait_for_function(f"() => String({RANGE.format('load')}) === String({RANGE.format(names[1])})")
    expect(page).to_have_url(re.compile("range=date"))

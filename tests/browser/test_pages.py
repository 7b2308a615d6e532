"""Every page in both themes and on a narrow screen: readable by all, within its width, by keyboard as by mouse."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Locator, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job
from controlplane.people.models import Team
from controlplane.telemetry.models import Simulation
from frontend.tabs import TABS
from tests.browser.conftest import LOOKS, NARROW, WIDE, Look, axe_findings
from tests.frontend import factories

pytestmark = pytest.mark.browser

OVER = "document.documentElement.scrollWidth - window.innerWidth"
"""By how many pixels a page is wider than its window."""

CRAMPED = """() => [...document.querySelectorAll("plotly-figure .plot:not([hidden])")].flatMap(plot => {
  const boxes = selector =>
    [...plot.querySelectorAll(selector)].map(text => text.getBoundingClientRect()).filter(box => box.width);
  const whole = plot.getBoundingClientRect();
  const leaves = box => Math.max(whole.left - box.left, box.right - whole.right, box.bottom - whole.bottom) > 1;
  const meet = (a, b) => Math.max(a.left - b.right, b.left - a.right, a.top - b.bottom, b.top - a.bottom) < -1;
  return [...plot.querySelectorAll("[class$=title]:is(text)")].filter(title => {
    const box = title.getBoundingClientRect();
    const labels = boxes("." + title.classList[0].replace("title", "tick") + " text");
    return leaves(box) || labels.some(label => leaves(label) || meet(box, label));
  }).map(title => title.textContent);
})"""
"""Titles of axes that reach out of their chart, or whose labels do, or that stand upon these."""

REST_MS = 3_000


@pytest.fixture
def job(ada: User) -> Job:
    """A job with everything on its page, beside one that waits and one that failed."""
    Job.objects.create(name="waits", spec=factories.spec(workers=8), submitted_by=ada)
    Job.objects.create(name="failed", spec=factories.spec(), submitted_by=ada, state="failed", reason="w2 ended")
    return factories.played_job(user=ada)


def paths(job: Job) -> list[str]:
    first = job.pk - 2
    tabs = [f"/jobs/{job.pk}/?tab={name}" for name in list(TABS)[1:]]
    tabs += [
        "/account/",
        "/audit/",
        "/teams/",
        "/alerts/",
        "/compare/",
        "/jobs/parameters/?group=policy",
        f"/compare/?jobs={job.pk},{first}",
        "/waiting/",
        "/system/",
        "/simulations/",
    ]
    tabs += [f"/workers/{Agent.objects.latest('pk').pk}/", f"/simulations/{Simulation.objects.latest('pk').pk}/"]
    return ["/", "/jobs/", "/workers/", "/jobs/new/", f"/jobs/{job.pk}/", *tabs, f"/jobs/{first}/"]


def visited(page: Page, job: Job) -> Iterator[str]:
    """Each page, once its charts are drawn."""
    for path in paths(job):
        page.goto(path)
        if path.startswith((f"/jobs/{job.pk}/", "/workers/", "/simulations/")):
            draw_all(page)
        if path == "/compare/":
            assert page.evaluate("document.querySelector('#pick-jobs').offsetWidth > 0.9 * innerWidth - 180"), path
        yield path


def cramped(page: Page) -> list[str]:
    """What ``CRAMPED`` still finds when the charts have come to rest: the library shifts words after it has drawn."""
    with suppress(PlaywrightTimeout):
        page.wait_for_function(f"() => ({CRAMPED})().length === 0", timeout=REST_MS)
    found: list[str] = page.evaluate(CRAMPED)
    return found


def draw_all(page: Page) -> None:
    for figure in page.locator("plotly-figure").all():
        figure.scroll_into_view_if_needed()
        expect(figure.locator(".main-svg").first).to_be_visible()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("theme", "width", "rules"), [("light", WIDE, None), ("dark", NARROW, LOOKS)])
def test_every_page_pleases_axe_and_fits_the_screen_even_with_a_name_without_spaces(
    site: str, look: Look, ada: User, job: Job, simulation: Simulation, theme: str, width: int, rules: list[str] | None
) -> None:
    """The document is the same in both themes and widths; the second time only its looks are judged."""
    Job.objects.update(name="x" * 100)
    page = look(site, user=ada, theme=theme, width=width)
    found = {path: (axe_findings(page, rules=rules), page.evaluate(OVER), cramped(page)) for path in visited(page, job)}
    page.goto(f"/jobs/{job.pk}/?tab=processes")
    page.locator("#exclude-w3").click()
    found["dialog"] = (axe_findings(page, within="dialog[open]"), page.evaluate(OVER), [])
    signed_out = look(site, theme=theme, width=width)
    signed_out.goto("/login/")
    found["/login/"] = (axe_findings(signed_out, rules=rules), signed_out.evaluate(OVER), [])
    assert {path: wrong for path, wrong in found.items() if wrong != ([], 0, [])} == {}


def test_the_overview_leaves_out_a_column_so_that_no_other_is_cut_off(
    site: str, look: Look, ada: User, job: Job
) -> None:
    vision = Team.objects.create(name="vision-and-language")
    Job.objects.filter(pk=job.pk).update(team=vision, submitted_by=User.objects.create_user("command-line"))
    page = look(site, user=ada)
    page.goto("/jobs/")
    expect(page.get_by_role("columnheader", name="Started by")).to_be_visible()
    page.goto("/")
    expect(page.get_by_role("columnheader", name="Time left")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Started by")).to_be_hidden()
    cards = page.locator(".column-wide .table-card")
    assert cards.evaluate_all("cards => cards.filter(card => card.scrollWidth > card.clientWidth).length") == 0


def test_the_bar_is_one_row_on_a_small_screen_whatever_its_chip_shows(
    site: str, look: Look, ada: User, job: Job
) -> None:
    page = look(site, user=ada, width=NARROW)
    page.goto(f"/jobs/{job.pk}/")
    middles = page.evaluate("""() => {
      document.querySelector("#freshness-chip [data-word]").textContent = "Stale (last data 03:17:39)";
      return [".brand", ".topbar-end"].map(each => document.querySelector(each).getBoundingClientRect())
        .map(box => box.top + box.height / 2);
    }""")
    assert middles[0] == pytest.approx(middles[1], abs=2)
    assert page.evaluate(OVER) == 0


def test_the_meters_of_a_machine_are_beside_each_other(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto("/")
    meters = page.locator(".machine").first.locator(".meter-row")
    tops = {round(box["y"]) for box in (meter.bounding_box() for meter in meters.all()) if box is not None}
    assert (meters.count(), len(tops)) == (3, 1)


def test_the_theme_is_kept_and_the_charts_follow_it(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/")
    root = page.locator("html")
    expect(root).to_have_attribute("data-theme", "light")
    page.get_by_label("Settings and account").click()
    with page.expect_response(lambda response: "batch-size?theme=dark" in response.url):
        page.get_by_label("Dark").check()
    expect(root).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(root).to_have_attribute("data-theme", "dark")


def arrive(page: Page, address: str) -> None:
    """Wait for a page that was requested by a key: its address is there before its scripts, which hear further keys."""
    page.wait_for_url(address, wait_until="domcontentloaded")


def test_the_keyboard_goes_everywhere(site: str, look: Look, ada: User, errors: list[str]) -> None:
    page = look(site, user=ada)
    # Two keys in a row mean a place within 1.5 s, which a busy machine may take from one to the other.
    page.clock.set_fixed_time(datetime.now(UTC))
    page.goto("/")
    for keys, path in (("gj", "/jobs/"), ("gw", "/workers/"), ("go", "/")):
        for key in keys:
            page.keyboard.press(key)
        arrive(page, f"{site}{path}")
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    page.keyboard.press("/")
    expect(page.locator("#search-all")).to_be_focused()
    page.keyboard.type("gw")
    expect(page.locator("#search-results")).to_contain_text("Nothing matches “gw”.")
    expect(page).to_have_url(f"{site}/")
    # The request of the second letter aborts one of the first that is still under way, which htmx logs in two lines.
    errors[:] = [error for error in errors if not error.startswith(("htmx:afterRequest", "htmx:sendAbort"))]


def test_a_search_narrows_the_list_as_one_types(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto("/jobs/")
    expect(page.locator("#jobs-table tbody tr:not(.row-note)")).to_have_count(3)
    page.locator("#search").fill("fail")
    expect(page.locator("#jobs-table tbody tr:not(.row-note)")).to_have_count(1)
    page.reload()
    expect(page.locator("#jobs-table tbody tr:not(.row-note)")).to_have_count(1)


def test_a_table_writes_numbers_as_sentences_do(site: str, look: Look, ada: User) -> None:
    page = look(site, user=ada)
    page.goto("/jobs/")
    table = "tables.draw({heads: ['x', 'y'], rows: [[0, [-0.25]], [1, [null]], [2, [-1234]], [3, [0.123456]]]})"
    cells = f"Array.from({table}.tBodies[0].rows, (row) => row.cells[1].textContent)"
    shown = page.evaluate(f"import('/static/paceline/js/tables.js').then((tables) => {cells})")
    assert shown == ["0.1235", "\N{MINUS SIGN}1234", "\N{EN DASH}", "\N{MINUS SIGN}0.25"]


def test_a_chart_is_also_a_table_and_its_axis_is_in_the_address(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/")
    figure = page.locator("#figure-batch-size")
    figure.get_by_role("radio", name="Time").check()
    expect(page).to_have_url(f"{site}/jobs/{job.pk}/?x-batch-size=time")
    page.reload()
    expect(figure.get_by_role("radio", name="Time")).to_be_checked()
    figure.get_by_role("radio", name="Iteration").check()
    figure.get_by_role("button", name="View as table").click()
    expect(figure.locator("thead")).to_have_text("iterationw0w1w2w3")
    expect(figure.locator("tbody tr").first).to_have_text("5993934723")


def test_the_timeline_moves_and_can_be_opened_in_perfetto(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/?tab=timeline")
    figure = page.locator("#figure-timeline")
    expect(figure.locator(".figure-caption")).to_contain_text("Iterations 50 to 59")
    page.keyboard.press("a")
    expect(figure.locator(".figure-caption")).to_contain_text("Iterations 40 to 49")
    expect(page).to_have_url(f"{site}/jobs/{job.pk}/?tab=timeline&first-timeline=40")
    page.reload()
    expect(figure.locator(".figure-caption")).to_contain_text("Iterations 40 to 49")
    trace = json.loads(exported(page, figure, "Trace for Perfetto"))
    assert {event["args"]["iteration"] for event in trace["traceEvents"] if event["ph"] == "X"} == set(range(40, 50))


WIDTH = "(([low, high]) => high - low)(document.querySelector('#figure-timeline .plot')._fullLayout.xaxis.range)"
"""What the timeline shows, in milliseconds."""


def test_keys_zoom_the_timeline_and_escape_shows_all(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/?tab=timeline")
    page.locator("#figure-timeline .main-svg").first.wait_for()
    whole = page.evaluate(WIDTH)
    for key, part in (("w", 0.5), ("w", 0.25), ("Escape", 1.0)):
        page.keyboard.press(key)
        page.wait_for_function(f"() => Math.abs({WIDTH} - {whole * part}) < 1")
    page.keyboard.press("s")
    page.wait_for_function(f"() => {WIDTH} > {whole * 1.4}")


def test_a_pointer_on_one_chart_is_marked_on_all(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/")
    for name in ("batch-size", "iteration-time"):
        page.locator(f"#figure-{name} .main-svg").first.wait_for()
    page.set_viewport_size({"width": WIDE, "height": 2_000})
    page.locator("#figure-convergence .main-svg").first.wait_for()
    with page.expect_response(re.compile("/clock/$")):
        page.locator("#figure-batch-size .nsewdrag").hover(position={"x": 110, "y": 60})
    page.locator("#figure-batch-size .nsewdrag").hover(position={"x": 120, "y": 60})
    expect(page.locator("#figure-iteration-time .crosshair")).to_be_visible()
    expect(page.locator("#figure-convergence .crosshair")).to_be_visible()
    page.mouse.move(2, 2)
    expect(page.locator("#figure-iteration-time .crosshair")).to_be_hidden()


def test_a_target_that_is_typed_is_kept_in_the_address(
    site: str, look: Look, ada: User, job: Job, errors: list[str]
) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/")
    figure = page.locator("#figure-convergence")
    figure.get_by_label("Target accuracy").fill("60%")
    page.keyboard.press("Enter")
    expect(figure.locator(".figure-caption")).to_contain_text("The target of 60.0% was reached after")
    expect(page).to_have_url(re.compile("accuracy-convergence=60%25"))
    page.reload()
    expect(figure.get_by_label("Target accuracy")).to_have_value("60%")
    expect(figure.locator(".figure-caption")).to_contain_text("The target of 60.0%")
    figure.get_by_label("Target loss").fill("low")
    page.keyboard.press("Enter")
    expect(figure.locator(".figure-error")).to_contain_text('loss: found "low", expected a number above 0')
    errors.clear()


def test_a_block_is_moved_in_thought(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/?tab=placement")
    page.locator("select[name=move]").select_option("1")
    page.locator("select[name=to]").select_option("1")
    page.get_by_role("button", name="Predict").click()
    expect(page).to_have_url(f"{site}/jobs/{job.pk}/?tab=placement&move=1&to=1")
    expect(page.locator(".move-sentence")).to_contain_text("predicted exchange time 18 ms instead of 9 ms")
    expect(page.locator("select[name=to]")).to_have_value("1")


def test_a_cell_of_the_heat_map_opens_its_iteration(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/?tab=heatmap")
    figure = page.locator("#figure-heat-map")
    figure.get_by_label("Metric").select_option("waiting")
    expect(page).to_have_url(f"{site}/jobs/{job.pk}/?tab=heatmap&metric-heat-map=waiting")
    expect(figure.locator(".figure-caption")).to_contain_text("time spent waiting")
    figure.locator(".nsewdrag").click(position={"x": 4, "y": 10})
    expect(page).to_have_url(f"{site}/jobs/{job.pk}/?tab=timeline&first-timeline=0")


def exported(page: Page, figure: Locator, word: str) -> bytes:
    """What the figure's export menu gives under that word."""
    figure.get_by_text("Export").click()
    with page.expect_download() as download:
        figure.get_by_role("button", name=word).click()
    return Path(download.value.path()).read_bytes()


def test_a_job_without_reports_shows_sentences_and_no_axes(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk - 2}/")
    expect(page.get_by_text("No data yet: batch sizes appear after the first reported iteration.")).to_be_visible()
    assert page.locator(".main-svg").count() == 0


def test_an_enrolment_token_is_made_on_the_page(site: str, look: Look, ada: User) -> None:
    page = look(site, user=ada)
    page.goto("/workers/")
    page.get_by_role("button", name="Create an enrolment token").click()
    expect(page.locator("#enrol-command")).to_contain_text("python -m workers join")
    page.get_by_role("button", name="Revoke", exact=True).click()
    dialog = page.locator("#ask-dialog")
    expect(dialog).to_contain_text("Machines that joined with it stay.")
    dialog.get_by_role("button", name="Revoke").click()
    expect(page.locator("#toasts")).to_contain_text("revoked.")
    expect(page.locator("#enrolment-tokens tbody")).to_have_count(0)

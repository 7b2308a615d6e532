"""Pages move by themselves: ticks, gaps, lost connections, pausing. Where its faults matter, the test is the socket."""

import json
import time
from contextlib import suppress

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Error, Page, Route, WebSocketRoute, expect

from controlplane.jobs.models import Job
from controlplane.telemetry.models import Cursor
from tests.browser.conftest import DEADLINE_MS, Look
from tests.frontend import factories

pytestmark = pytest.mark.browser

SOCKET = "**/ws/pages"
ITERATION = "#job-facts .facts > div:nth-child(2) dd:first-of-type"


class Sockets:
    """The page's websockets, answered by the test."""

    def __init__(self, page: Page) -> None:
        self.opened: list[WebSocketRoute] = []
        page.route_web_socket(SOCKET, lambda socket: self.opened.append(socket))

    def tick(self, seq: int, *jobs: int) -> None:
        """Say that these jobs moved."""
        moved = dict.fromkeys(map(str, jobs), "running")
        tick = {"type": "tick", "seq": seq, "at_ms": seq, "jobs": moved, "fleet": False}
        self.opened[-1].send(json.dumps(tick))


def count_of(page: Page, path: str) -> list[str]:
    """Notes every request of that path from now on."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.url.split("?")[0].endswith(path) else None)
    return asked


def advance(job: Job) -> None:
    """One more iteration, as ingest would have written it."""
    Job.objects.filter(pk=job.pk).update(iteration=job.iteration + 1)
    Cursor.objects.filter(job=job).update(position=f"{job.iteration + 1}-1")
    job.refresh_from_db()


def test_a_paused_page_stalls_and_catches_up(site: str, look: Look, ada: User) -> None:
    job = factories.demo_job(user=ada)
    page = look(site, user=ada)
    sockets, asked = Sockets(page), count_of(page, "/live/")
    page.goto(f"/jobs/{job.pk}/")
    expect(page.locator("#freshness-chip")).to_have_text("Live")
    page.wait_for_function("() => document.querySelector('plotly-figure .main-svg')")
    page.keyboard.press("Space")
    expect(page.locator("#freshness-chip")).to_have_text("Paused")
    before = len(asked)
    advance(job)
    sockets.tick(1, job.pk)
    page.clock.install()
    page.clock.run_for(5_000)
    assert len(asked) == before
    page.keyboard.press("Space")
    page.clock.run_for(5_000)
    expect(page.locator(ITERATION)).to_have_text("61 of 400")


def test_other_jobs_do_not_move_this_page_but_a_gap_does(site: str, look: Look, ada: User) -> None:
    job = factories.demo_job(user=ada)
    page = look(site, user=ada)
    sockets = Sockets(page)
    with page.expect_response("**/live/"):
        page.goto(f"/jobs/{job.pk}/")
    asked = count_of(page, "/live/")
    sockets.tick(1, job.pk + 1)
    sockets.tick(2, job.pk + 1)
    sockets.tick(2, job.pk)
    with page.expect_response("**/live/"):
        sockets.tick(4, job.pk + 1)
    assert len(asked) == 1


def test_a_figure_that_has_not_changed_is_not_sent_again(site: str, look: Look, ada: User) -> None:
    job = factories.demo_job(user=ada)
    page = look(site, user=ada)
    sockets = Sockets(page)
    page.goto(f"/jobs/{job.pk}/")
    page.wait_for_function("() => document.querySelector('#figure-batch-size .main-svg')")
    sockets.tick(1, job.pk)
    with page.expect_response(lambda response: "/figures/batch-size" in response.url and response.status == 304):
        sockets.tick(2, job.pk)
    expect(page.locator("#figure-batch-size .main-svg").first).to_be_visible()


def test_what_did_not_change_keeps_its_focus(site: str, look: Look, ada: User) -> None:
    job = factories.demo_job(user=ada)
    page = look(site, user=ada)
    sockets = Sockets(page)
    with page.expect_response("**/live/"):
        page.goto(f"/jobs/{job.pk}/")
    page.locator("#stop").focus()
    advance(job)
    sockets.tick(1, job.pk)
    expect(page.locator(ITERATION)).to_have_text("61 of 400")
    expect(page.locator("#stop")).to_be_focused()


def test_a_button_that_is_being_pressed_stays_while_the_numbers_move(site: str, look: Look, ada: User) -> None:
    job = factories.demo_job(user=ada)
    page = look(site, user=ada)
    sockets = Sockets(page)
    with page.expect_response("**/live/"):
        page.goto(f"/jobs/{job.pk}/")
    page.locator("#stop").hover()
    page.mouse.down()
    advance(job)
    sockets.tick(1, job.pk)
    expect(page.locator(ITERATION)).to_have_text("61 of 400")
    page.mouse.up()
    expect(page.locator("#stop-dialog")).to_be_visible()


def test_a_figure_that_cannot_be_fetched_reports_it_and_keeps_what_it_shows(
    site: str, look: Look, ada: User, errors: list[str]
) -> None:
    job = factories.demo_job(user=ada)
    page = look(site, user=ada)
    sockets = Sockets(page)
    page.goto(f"/jobs/{job.pk}/")
    figure = page.locator("#figure-batch-size")
    expect(figure.locator(".main-svg").first).to_be_visible()

    def refuse(route: Route) -> None:
        route.fulfill(status=503, body="")

    page.route("**/figures/batch-size*", refuse)
    sockets.tick(1, job.pk)
    expect(figure.locator(".figure-error")).to_contain_text("Failed to load this figure (status 503")
    expect(figure.locator(".main-svg").first).to_be_visible()
    assert {"503" in error for error in errors} == {True}
    errors.clear()
    page.unroute("**/figures/batch-size*")
    sockets.tick(2, job.pk)
    expect(figure.locator(".figure-error")).to_be_hidden()
    assert errors == []


def test_numbers_are_grey_while_they_are_stale(site: str, look: Look, ada: User) -> None:
    job = factories.demo_job(user=ada)
    page = look(site, user=ada)
    Sockets(page)
    page.goto(f"/jobs/{job.pk}/")
    expect(page.locator("#freshness-chip")).to_have_text("Live")
    number = page.locator("#job-facts dd").first
    expect(number).to_have_css("opacity", "1")
    for path in ("**/freshness/*", "**/live/*"):  # the test alone says how old the data is
        page.route(path, lambda route: route.fulfill(status=204))
    page.wait_for_load_state("networkidle")  # an earlier reply would say it, too
    late = "seconds => { document.querySelector('#data-age data').dataset.waits = seconds; }"
    page.evaluate(late, 60)
    expect(page.locator("#freshness-chip")).to_contain_text("Stale")
    expect(number).to_have_css("opacity", "0.6")
    page.evaluate(late, 0)
    expect(page.locator("#freshness-chip")).to_have_text("Live")
    expect(number).to_have_css("opacity", "1")


def test_a_finished_job_is_called_finished(site: str, look: Look, ada: User) -> None:
    job = factories.make_job(user=ada, state="succeeded", finished_at=factories.START)
    page = look(site, user=ada)
    Sockets(page)
    page.goto(f"/jobs/{job.pk}/")
    expect(page.locator("#freshness-chip")).to_have_text("Finished")


def test_a_page_that_is_left_by_signing_out_requests_nothing_more(site: str, look: Look, ada: User) -> None:
    """The session ends before the browser has the next page: what is asked in between is refused (401)."""
    job = factories.demo_job(user=ada)
    page = look(site, user=ada)
    sockets = Sockets(page)
    page.goto(f"/jobs/{job.pk}/")
    page.wait_for_function("() => document.querySelector('#figure-batch-size .main-svg')")
    under_way: list[Route] = []
    for path in ("**/figures/**", "**/live/**"):
        page.route(path, lambda route: under_way.append(route))
    with page.expect_request("**/figures/**"), page.expect_request("**/live/**"):
        sockets.tick(1, job.pk)
    leaving: list[Route] = []
    page.route("**/logout/", lambda route: leaving.append(route))
    page.evaluate("document.querySelector('form[action$=\"/logout/\"]').requestSubmit()")
    deadline = time.monotonic() + DEADLINE_MS / 1000
    while not leaving:
        assert time.monotonic() < deadline, "the form for signing out was never sent"
        page.wait_for_timeout(10)  # nothing else can be awaited of a page that is being left
    signed_out = leaving[0].fetch(max_redirects=0)
    asked, figures = count_of(page, f"/jobs/{job.pk}/live/"), count_of(page, "/figures/batch-size")
    for route in under_way:
        with suppress(Error):  # the page has ended it
            route.continue_()
    sockets.tick(2, job.pk)
    page.wait_for_timeout(1_000)  # twice as long as a page gathers ticks; a page that is being left has no other clock
    leaving[0].fulfill(response=signed_out)
    page.wait_for_url("**/login/")
    assert (asked, figures) == ([], [])

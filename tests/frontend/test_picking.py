"""Machines as a reader wants to see them: filtered, in an order, and as an address that can be passed on."""

import re

import pytest
from django.test import Client

from controlplane.jobs.models import Job
from frontend.parameters import QueryError
from frontend.queries.fleet import machines
from frontend.queries.picking import PER_PAGE, picked
from tests.frontend import factories
from tests.frontend.test_pages import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    """Even shares on four machines, of which the last is the slowest and flagged."""
    job = factories.make_job()
    factories.make_processes(job, factories.make_agents())
    factories.make_reports(job, [factories.Pace(shares=factories.EVEN)] * 20)
    factories.make_flag(job)
    return job


def names(query: dict[str, str]) -> list[str]:
    return [card.name.removeprefix("machine-") for card in picked(machines(factories.START), query).page]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, "0123"),
        ({"state": "flagged"}, "3"),
        ({"state": "offline"}, ""),
        ({"state": "free"}, ""),
        ({"label": "class=slow"}, "23"),
        ({"job": "99"}, ""),
        ({"sort": "load"}, "3210"),
        ({"sort": "flag"}, "3012"),
        ({"sort": "waiting"}, "0123"),
        ({"sort": "waiting", "label": "class=slow", "state": "online"}, "23"),
    ],
)
def test_machines_are_filtered_and_ordered(job: Job, query: dict[str, str], found: str) -> None:
    assert "".join(names(query)) == found


def test_who_waits_is_reported_if_the_order_requires_it(job: Job, viewer: Client) -> None:
    shown = picked(machines(factories.START), {"sort": "waiting", "job": str(job.pk)})
    slowest = shown.page[-1].id
    assert (shown.of, shown.jobs, shown.labels) == (4, [job.pk], ["class=fast", "class=slow"])
    assert (shown.waits[slowest], max(shown.waits.values())) == (
        pytest.approx(0.0, abs=1e-9),
        pytest.approx(0.726, abs=0.01),
    )
    for path in ("/", "/workers/"):
        assert "waiting 73%" in text_of(viewer, f"{path}?sort=waiting")
        assert "waiting 73%" not in text_of(viewer, path)


def test_an_address_reports_what_is_wrong_with_it_and_nothing_found_leads_back(job: Job, viewer: Client) -> None:
    for path in ("/", "/workers/", "/workers/live/", "/live/"):
        assert text_of(viewer, f"{path}?state=best", 400).startswith("state: found 'best', expected one of online,")
        assert "None of the 4 machines matches." in text_of(viewer, f"{path}?state=offline")
    with pytest.raises(QueryError, match="job: found 'x', expected the ID of a job"):
        picked([], {"job": "x"})


def test_the_load_of_each_machine_is_a_bar_without_the_chart_library(job: Job, viewer: Client) -> None:
    page = viewer.get("/?sort=load").content.decode()
    assert re.findall(r'bar-load" data-of="([^"]+)"', page) == ["360", "280", "200", "120"]
    assert "plotly" not in page


def test_many_machines_are_paginated(viewer: Client) -> None:
    factories.make_agents(PER_PAGE + 2)
    for path in ("/", "/workers/"):
        first, second = text_of(viewer, path), text_of(viewer, f"{path}?page=2&sort=load")
        assert f"Page 1 of 2 · {PER_PAGE + 2} machines" in first
        assert f"machine-{PER_PAGE - 1} " in first
        assert f"machine-{PER_PAGE} " not in first
        assert "Page 2 of 2" in second
    assert f"Machines online {PER_PAGE + 2} of {PER_PAGE + 2}" in text_of(viewer, "/?page=2")
    assert 'href="?sort=load&amp;page=2"' in viewer.get("/live/?sort=load").content.decode()


def test_the_tiles_stay_those_of_the_whole_cluster(job: Job, viewer: Client) -> None:
    assert "Machines online 4 of 4" in text_of(viewer, "/?state=offline")

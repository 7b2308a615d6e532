"""A finding whose cost has gone stays listed, and asks for no one's attention."""

from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from controlplane.api.metrics.jobs import read_jobs
from controlplane.jobs.flag_notes import flag_acknowledge
from controlplane.jobs.models import Flag, Job
from controlplane.runtime.alert_view import _flags
from controlplane.telemetry import present_costs
from controlplane.telemetry.present_costs import pressing
from frontend.queries import fleet, jobs, overview
from frontend.queries.evidence import evidence_of
from tests.frontend import factories
from tests.frontend.factories import BALANCED, EVEN, Pace

pytestmark = pytest.mark.django_db

COSTS = {"iteration_s": 0.264, "without_s": 0.135, "cost_s": 0.129, "busy_s": 0.264}
NONE = {"iteration_s": 0.264, "without_s": 0.263, "cost_s": 0.001, "busy_s": 0.264}


@pytest.fixture(autouse=True)
def _nothing_cached(redis_url: str) -> None:
    cache.clear()


def flagged(*, paces: list[Pace], evidence: dict[str, Any]) -> Job:
    """A running job in which w3 was flagged at its beginning."""
    job, agents = factories.make_job(), factories.make_agents()
    factories.make_processes(job, agents)
    factories.make_reports(job, paces)
    factories.make_flag(job, rank=3, evidence=evidence)
    job.refresh_from_db()
    return job


def attention(job: Job) -> set[int]:
    """How many findings each place counts: lists, tiles, machines, metrics, and alerts by what they cost."""
    now = timezone.now()
    cards = fleet.machines(now)
    (line,) = jobs.lines([job], now)
    return {
        line.flags,
        overview.tiles(cards, [line], now).flags,
        sum(card.flagged for card in cards),
        read_jobs().flags.get(job.pk, 0),
        sum(flag.cost > 0.1 for flag in _flags([job.pk], now)),
        len(pressing(Flag.objects.all(), now)),
    }


def test_a_finding_is_announced_while_it_costs_time() -> None:
    job = flagged(paces=[Pace(shares=EVEN)] * 20, evidence=COSTS)
    assert attention(job) == {1}
    (told,) = evidence_of(job, list(Flag.objects.all())).values()
    assert not told.is_quiet
    assert told.cost.startswith("costs 128 ms per iteration")


def test_a_finding_whose_cost_balancing_has_ended_is_quiet_and_stays_listed() -> None:
    job = flagged(paces=[*[Pace(shares=EVEN)] * 10, *[Pace(shares=BALANCED)] * 20], evidence=COSTS)
    assert attention(job) == {0}
    (told,) = evidence_of(job, list(Flag.objects.all())).values()
    assert (told.is_quiet, told.cost) == (True, "no current impact")


def test_a_finding_that_begins_to_cost_time_is_announced() -> None:
    job = flagged(paces=[*[Pace(shares=BALANCED)] * 10, *[Pace(shares=EVEN)] * 20], evidence=NONE)
    assert attention(job) == {1}


def test_what_was_acknowledged_is_counted_nowhere_though_it_costs_time() -> None:
    job = flagged(paces=[Pace(shares=EVEN)] * 20, evidence=COSTS)
    flag_acknowledge(flag=Flag.objects.get(), actor="ada")
    assert attention(job) == {0}


def test_a_finding_about_something_else_than_time_is_announced() -> None:
    job = flagged(paces=[Pace(shares=BALANCED)] * 20, evidence={"own": 10})
    assert len(pressing(Flag.objects.all(), timezone.now())) == 1
    assert evidence_of(job, list(Flag.objects.all()))[Flag.objects.get().pk].cost == ""


def test_measurements_that_cannot_be_read_leave_the_cost_of_then(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("a column of no length")

    flagged(paces=[Pace(shares=BALANCED)] * 20, evidence=COSTS)
    monkeypatch.setattr(present_costs, "read_columns", broken)
    assert len(pressing(Flag.objects.all(), timezone.now())) == 1

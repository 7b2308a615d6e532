"""The last minute of machines: busy parts of seconds come from the reports, and every look reads only what is new."""

import re
from datetime import timedelta

import numpy as np
import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.models import Agent, Reservation
from controlplane.jobs.models import Job, Process
from controlplane.telemetry.models import ReportBatch
from frontend.formats import NONE
from frontend.queries import fleet
from frontend.queries.minute import SECONDS, Minute, Reports, Worker, added, busy_lines, line
from tests.frontend import factories
from tests.frontend.factories import START
from tests.telemetry.reports import change_reports

NOW = START + timedelta(seconds=SECONDS)
FIRST = int(START.timestamp())
W0: Worker = (1, "w0-a")


def told(*reports: tuple[float, float, float]) -> Reports:
    """One worker's: when each ended, in seconds of the minute, how long it took, and the busy part of that."""
    ended, whole_s, busy_s = (np.array(column, np.float64) for column in zip(*reports, strict=True))
    return Reports(workers=[W0] * len(reports), ended=FIRST + ended, whole_s=whole_s, busy_s=busy_s)


def after(*looks: Reports, first: int = FIRST) -> Minute:
    minute = Minute(first=FIRST, last_row=0, workers={})
    for number, look in enumerate(looks, start=1):
        minute = added(minute, look, first, number)
    return minute


def of(minute: Minute, first: int, last: int) -> list[float | None]:
    return [None if part is None else round(part, 3) for part in line(minute.workers[W0])[first:last]]


def test_a_worker_waits_first_and_then_works() -> None:
    """An iteration of 4 s whose last second and a half was work, and nothing after it."""
    assert of(after(told((10.0, 4.0, 1.5))), 5, 12) == [None, 0.0, 0.0, 0.5, 1.0, None, None]


def test_short_iterations_share_their_second() -> None:
    found = of(after(told(*[(5 + 0.25 * k, 0.25, 0.2) for k in range(1, 9)])), 4, 8)
    assert found == [None, 0.8, 0.8, None]


def test_a_second_of_which_little_is_known_is_left_out() -> None:
    assert of(after(told((8.3, 1.0, 1.0))), 6, 9) == [None, 1.0, None]


iterations = st.lists(
    st.tuples(st.floats(0, SECONDS), st.floats(0.001, 20), st.floats(0, 1)), min_size=1, max_size=30
).map(lambda found: [(ended, whole, whole * part) for ended, whole, part in found])


@given(iterations, st.integers(0, 30))
def test_it_does_not_matter_in_how_many_looks_reports_were_read(
    reports: list[tuple[float, float, float]], cut: int
) -> None:
    parts = [part for part in (reports[:cut], reports[cut:]) if part]
    at_once, bit_by_bit = after(told(*reports)), after(*[told(*part) for part in parts])
    assert at_once.workers.keys() == bit_by_bit.workers.keys()
    for worker, seconds in at_once.workers.items():
        np.testing.assert_allclose(bit_by_bit.workers[worker], seconds, atol=1e-4)
        assert (seconds[1] <= seconds[0] + 1e-4).all(), "nobody is busy for longer than anything is known of it"
        assert all(part is None or 0.0 <= part <= 1.0 for part in line(seconds))


def test_the_minute_moves_on_and_forgets_who_has_gone() -> None:
    minute = after(told((10.0, 1.0, 1.0), (30.0, 1.0, 1.0)))
    nothing = Reports(workers=[], ended=np.empty(0), whole_s=np.empty(0), busy_s=np.empty(0))
    later = added(minute, nothing, FIRST + 20, 1)
    assert [second for second, part in enumerate(line(later.workers[W0])) if part is not None] == [9]
    assert added(later, nothing, FIRST + 31, 1).workers == {}


def job_of_a_minute() -> Job:
    """Even shares on four uneven machines: iterations of 264 ms, of which the fast ones work for 71 ms."""
    job = factories.make_job()
    factories.make_processes(job, factories.make_agents(), shares=factories.EVEN)
    factories.make_reports(job, [factories.Pace(shares=factories.EVEN)] * 200)
    return job


@pytest.mark.django_db
def test_machines_have_the_minute_of_their_workers() -> None:
    job_of_a_minute()
    cards = fleet.machines(NOW)
    paced = factories.Pace(shares=factories.EVEN)
    assert [card.busy for card in cards] == pytest.approx([busy / paced.length_s for busy in paced.busy_s], abs=1e-3)
    fast, slow = cards[0].minute.line, cards[3].minute.line
    assert [part is not None for part in slow] == [True] * 53 + [False] * 7
    assert np.mean([part for part in fast if part is not None]) == pytest.approx(0.071 / 0.264, abs=0.01)
    assert len(cards[3].sparklines) == 1
    assert cards[3].sparklines[0].startswith("0.0,1")


@pytest.mark.django_db
def test_two_workers_of_one_machine_are_one_line() -> None:
    job_of_a_minute()
    first, last = Agent.objects.order_by("pk").first(), Process.objects.get(role="worker", index=3)
    Process.objects.filter(pk=last.pk).update(agent=first, slot=1)
    lines = busy_lines(list(Agent.objects.all()), NOW)
    assert first is not None
    assert lines.keys() == set(Agent.objects.order_by("pk").values_list("pk", flat=True)[:3])
    assert lines[first.pk].line[30] == pytest.approx((0.269 + 0.996) / 2, abs=0.05)


@pytest.mark.django_db
def test_a_worker_that_ended_within_the_minute_is_still_in_it() -> None:
    job_of_a_minute()
    Process.objects.filter(index=3).update(state="lost", ended_at=NOW - timedelta(seconds=10))
    Process.objects.filter(index=2).update(state="lost", ended_at=NOW - timedelta(seconds=70))
    assert [len(card.minute.line) for card in fleet.machines(NOW)] == [SECONDS, SECONDS, 0, SECONDS]


@pytest.mark.django_db
def test_a_later_look_reads_only_what_was_written_since() -> None:
    job = job_of_a_minute()
    agents = list(Agent.objects.all())
    busy_lines(agents, NOW)
    last = ReportBatch.objects.latest("pk")
    factories.make_reports(job, [factories.Pace(shares=factories.BALANCED)] * 3, first=210)
    with CaptureQueriesContext(connection) as queries:
        busy_lines(agents, NOW)
    assert len(queries) == 2, "one for the reports of all machines, one for where their workers ran"
    assert f'"id" > {last.pk}' in queries[0]["sql"]


@pytest.mark.django_db
def test_the_cards_of_many_machines_take_as_many_queries_as_those_of_one() -> None:
    job_of_a_minute()

    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            fleet.machines(NOW)
        return len(queries)

    before = asked()
    more = factories.make_job()
    factories.make_processes(more, factories.make_agents(12, first=4), shares=(8,) * 12)
    assert asked() == before


@pytest.mark.django_db
def test_a_card_draws_the_minute_and_reports_it_as_text(viewer: Client) -> None:
    job_of_a_minute()
    assert "no recent report" in viewer.get("/").content.decode(), "those reports are of long ago"
    cache.clear()
    later = timezone.now() - NOW
    change_reports(lambda row: {"at": row.at + later})
    page = viewer.get("/").content.decode()
    assert page.count('<svg class="spark"') == 4
    assert len(re.findall(r'aria-label="between \d+% and \d+% busy over the last minute"', page)) == 4


@pytest.mark.django_db
def test_a_machine_whose_workers_have_ended_is_busy_no_more(viewer: Client) -> None:
    job_of_a_minute()
    later = timezone.now() - NOW
    change_reports(lambda row: {"at": row.at + later})
    assert re.findall('meter-value">(.+?)</span>', card_of_slowest(viewer)) == ["100%", "25%"]
    Process.objects.update(state="stopped", ended_at=timezone.now())
    Reservation.objects.all().delete()
    cache.clear()
    found = card_of_slowest(viewer)
    assert re.findall('meter-value">(.+?)</span>', found) == [NONE, NONE]
    assert 'class="spark"' in found, "what they did in the minute is still drawn"


def card_of_slowest(viewer: Client) -> str:
    """From the line of the minute on."""
    page = viewer.get("/").content.decode()
    return page[page.index("machine-3</a></h3>") :].partition(">Busy</")[2].partition("</ul>")[0]

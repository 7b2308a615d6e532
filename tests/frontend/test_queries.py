"""What is read from the database, and how much of it."""

from datetime import timedelta

import numpy as np
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from controlplane.core.states import JobState
from controlplane.fleet.models import Agent, Reservation
from controlplane.jobs.models import Flag, Job, Process
from controlplane.telemetry.metrics import ITERATION
from controlplane.telemetry.models import Simulation
from frontend.figures.rows import View
from frontend.queries import costs, fleet, lanes, overview
from frontend.queries import figures as queries
from frontend.queries import job as job_queries
from frontend.queries import jobs as job_list
from frontend.queries.history import History
from tests.frontend import factories
from tests.frontend.factories import BALANCED, EVEN, START, Pace
from tests.telemetry.reports import change_reports, stored_reports

pytestmark = pytest.mark.django_db


def test_traces_hold_every_report_of_a_small_job() -> None:
    job = factories.make_job()
    factories.make_reports(job, [Pace(shares=EVEN), Pace(shares=BALANCED)])
    traces = queries.traces(job, View(x="iteration"))
    assert (traces.width, traces.reports, traces.roster) == (1, 8, 4)
    assert [list(worker.highest) for worker in traces.workers] == [[64, 93], [64, 93], [64, 47], [64, 23]]
    slow = traces.workers[3]
    assert list(slow.iteration) == [0, 1]
    assert slow.compute_s == pytest.approx([0.256, 0.092])
    assert slow.communication_s == pytest.approx([0.007, 0.007])
    assert slow.waiting_s == pytest.approx([0.0, 0.002])
    assert slow.elapsed_s == pytest.approx([0.264, 0.366])


def test_no_figure_is_drawn_from_more_windows_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MAX_WINDOWS", 40)
    monkeypatch.setattr(queries, "MAX_SUMMED", 40)
    job = factories.make_job()
    factories.make_reports(job, [Pace(shares=EVEN)] * 95 + [Pace(shares=BALANCED)] * 5)
    traces = queries.traces(job, View(x="iteration"))
    learned = queries.convergence(job, View(x="time"))
    assert (traces.width, traces.reports, learned.reports) == (10, 400, 400)
    assert [len(worker.iteration) for worker in traces.workers] == [10, 10, 10, 10]
    assert list(learned.iteration) == list(range(0, 100, 10))
    assert [int(worker.lowest.min()) for worker in traces.workers] == [64, 64, 47, 23]
    assert (learned.samples[-1], learned.updates[-1]) == (100 * 256, 400)
    assert set(learned.batch) == {256.0}  # however many iterations an entry stands for


def test_of_many_workers_the_slowest_and_the_fastest_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MAX_WORKERS", 2)
    job = factories.make_job()
    factories.make_reports(job, [Pace(shares=EVEN)] * 3)
    assert [worker.rank for worker in queries.traces(job, View(x="iteration")).workers] == [0, 3]


def test_workers_can_be_picked() -> None:
    job = factories.make_job()
    factories.make_reports(job, [Pace(shares=EVEN)])
    assert [worker.rank for worker in queries.traces(job, View(ranks=(1, 2, 9))).workers] == [1, 2]


def test_a_loss_that_is_not_finite_is_a_gap() -> None:
    job = factories.make_job()
    factories.make_reports(job, [Pace(shares=EVEN)] * 2)
    change_reports(lambda row: {"loss": None} if row.iteration == 1 else {})
    loss = queries.convergence(job, View(x="time")).loss
    assert (loss[0], bool(np.isnan(loss[1]))) == (pytest.approx(2.33), True)


def test_scores_are_drawn_at_the_samples_of_their_version() -> None:
    job = factories.make_job()
    factories.make_reports(job, [Pace(shares=EVEN)] * 4)
    factories.make_scores(job, every=2, until=4)
    learned = queries.convergence(job, View(x="samples"))
    assert (list(learned.scored_samples), list(learned.scored_updates)) == ([0, 512, 1024], [0, 8, 16])


def test_lanes_compare_now_with_the_even_split() -> None:
    job = factories.demo_job()
    found = lanes.lanes(job)
    slow = found.rows[3]
    assert (slow.machine, slow.share, slow.even_share, slow.flagged) == ("machine-3", 23, 64, True)
    assert slow.even is not None
    assert (slow.even.whole_s, slow.now.whole_s) == (pytest.approx(0.264), pytest.approx(0.102))
    assert found.rows[0].even.lost_share == pytest.approx(0.727, abs=0.01)
    assert (found.iterations, found.roster, found.adaptive, found.has_even) == (10, 4, True, True)


def test_the_speed_up_is_shown_for_the_last_iterations_and_the_whole_run() -> None:
    job = factories.demo_job()
    even, balanced = (Pace(shares=shares).length_s for shares in (EVEN, BALANCED))
    reports = [row for row in stored_reports(job.pk) if row.rank == 0]
    first = sum(row.samples == 64 for row in reports)
    mean = (first * even + (len(reports) - first) * balanced) / len(reports)
    gained = lanes.lanes(job).gained
    assert gained is not None
    assert (gained.iterations, gained.recent) == (10, pytest.approx(even / balanced, rel=1e-3))
    assert gained.run == pytest.approx(even / mean, rel=1e-3)


def test_lanes_of_those_who_are_left_are_not_compared_with_all() -> None:
    job = factories.make_job(state=JobState.FAILED)
    factories.make_reports(job, [Pace(shares=EVEN)] * 10)
    factories.make_reports(job, [Pace(shares=(128, 128))] * 4, rank_count=2, first=10)
    change_reports(lambda row: {"generation": 2} if row.iteration >= 10 else {})
    found = lanes.lanes(job)
    assert [(lane.rank, lane.share, lane.even_share, lane.even) for lane in found.rows] == [
        (0, 128, 128, None),
        (1, 128, 128, None),
    ]
    assert (found.roster, found.reporting, found.iterations, found.has_even, found.failed) == (4, 2, 4, False, True)


def test_lanes_read_few_rows_of_any_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MAX_ROWS", 8)
    found = lanes.lanes(factories.demo_job())
    assert (found.iterations, len(found.rows)) == (2, 4)


def test_a_running_job_is_as_fast_as_its_last_reports() -> None:
    job = factories.make_job()
    ended = factories.make_reports(job, [Pace(shares=EVEN)] * 5)
    now = ended + timedelta(seconds=1)
    line = job_list.one_job(job, now)
    assert (line.samples_per_second, line.left_s) == (
        pytest.approx(256 / 0.264),
        pytest.approx((400 - job.iteration) * 0.264),
    )
    later = job_list.one_job(job, now + timedelta(seconds=30))
    assert (later.samples_per_second, later.left_s) == (0.0, None)


def test_a_job_that_is_over_is_as_fast_as_it_was_on_average() -> None:
    job = factories.make_job(state=JobState.SUCCEEDED, samples=5_000, finished_at=START + timedelta(seconds=10))
    assert job_list.one_job(job, START + timedelta(days=1)).samples_per_second == 500.0


def test_jobs_are_found_by_name_number_and_person() -> None:
    first = factories.make_job()
    other = Job.objects.create(name="vision", spec=factories.spec())
    by = {
        text: [line.id for line in job_list.job_page(now=START, search=text)[1]] for text in ("VIS", str(first.pk), "x")
    }
    assert by == {"VIS": [other.pk], str(first.pk): [first.pk], "x": []}


def test_a_page_of_many_jobs_takes_the_queries_of_a_page_of_few() -> None:
    def queries_of_page() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            job_list.job_page(now=START)
        return len(captured)

    factories.make_job(state=JobState.SUCCEEDED, finished_at=START)
    few = queries_of_page()
    for _ in range(10):
        factories.make_job(state=JobState.SUCCEEDED, finished_at=START)
    assert queries_of_page() == few


def test_a_share_decision_reports_what_it_changed() -> None:
    job = factories.make_job()
    factories.make_decisions(job, count=2)
    lines = job_queries.decisions(job, kinds="shares")
    assert [line.what for line in lines] == [
        "shares unchanged",
        "w0 64 \N{RIGHTWARDS ARROW} 93, w1 64 \N{RIGHTWARDS ARROW} 93, w2 64 \N{RIGHTWARDS ARROW} 47,"
        " w3 64 \N{RIGHTWARDS ARROW} 23",
        "w0 64, w1 64, w2 64, w3 64",
    ]


def test_the_key_decisions_leave_shares_out() -> None:
    job = factories.make_job()
    factories.make_decisions(job, count=2)
    kinds = ["set-placement", "set-placement", "raise-flag", "set-roster", "move-job"]
    assert [line.kind for line in job_queries.decisions(job)] == kinds
    assert [line.sequence for line in job_queries.decisions(job, kinds="all", before=2)] == [1, 0]


def test_a_machine_shows_its_load_and_its_part_of_the_job() -> None:
    factories.demo_job()
    cards = fleet.machines(START)
    assert [round(card.part, 3) for card in cards] == [0.363, 0.363, 0.184, 0.09]
    assert [(card.cpu, card.taken, card.flagged) for card in cards] == [
        (pytest.approx(0.3), 1, False),
        (pytest.approx(0.5), 1, False),
        (pytest.approx(0.7), 1, False),
        (pytest.approx(0.9), 1, True),
    ]


def test_servers_show_what_they_hold_how_long_they_take_and_what_is_emulated() -> None:
    job = factories.make_job()
    factories.make_processes(job, factories.make_agents())
    Process.objects.filter(role="server", index=1).update(blocks=3, held_bytes=2600, push_s=0.02, pull_s=0.03)
    job.spec["emulate_servers"] = [{"bytes_per_second": None}, {"bytes_per_second": 1e6, "changes": []}]
    Flag.objects.create(
        job=job, key="f", subject="server", rank=1, kind="communication", persistence="lasting", opened_at=START
    )
    first, second = job_queries.servers(job)
    assert (first.blocks, first.push_s, first.flagged) == (2, 0.004, False)
    assert (second.blocks, second.held_bytes, second.push_s, second.pull_s, second.flagged) == (
        3,
        2600,
        0.02,
        0.03,
        True,
    )
    assert second.emulated == {"bytes_per_second": 1e6, "changes": []}
    assert not any(lane.flagged for lane in lanes.lanes(job).rows)


def test_tiles_sum_up_what_runs() -> None:
    job = factories.demo_job()
    machines, lines = fleet.machines(START), overview.overview_jobs(START + timedelta(seconds=9))
    tiles = overview.tiles(machines, lines, START + timedelta(seconds=9))
    assert (tiles.machines_online, tiles.machines, tiles.slots_taken, tiles.slots) == (4, 4, 4, 4)
    assert (tiles.jobs_running, tiles.jobs_queued, tiles.flags) == (1, 0, 1)
    last = History(job).latest(ITERATION, costs.RECENT)
    spent = {name: sum(float(block[name].sum()) for block in last.values()) for name in ITERATION}
    lost = [spent[name] / sum(spent.values()) for name in ("waiting_s", "coordination_s")]
    assert [tiles.waiting_share, tiles.coordination_share] == pytest.approx(lost)
    assert tiles.lost_share == pytest.approx(sum(lost))
    assert tiles.samples_per_second == pytest.approx(256 / 0.102, rel=1e-3)


def test_tiles_count_what_is_not_shown_below_them_too() -> None:
    now, beyond = START + timedelta(seconds=9), 3
    job = factories.demo_job()
    for _ in range(overview.LIVE_JOBS + beyond - 1):
        factories.make_job()
    lines = overview.overview_jobs(now)
    tiles = overview.tiles(fleet.machines(START), lines, now)
    assert job.pk not in {line.id for line in lines}
    assert (tiles.jobs_running, len(lines)) == (overview.LIVE_JOBS + beyond, overview.LIVE_JOBS)
    assert tiles.samples_per_second == pytest.approx(256 / 0.102, rel=1e-3)
    assert tiles.waiting_share == overview.tiles(fleet.machines(START), [], now).waiting_share != 0.0


def test_the_last_decision_of_any_job_reports_what_changed() -> None:
    assert overview.last_decision() is None
    job = factories.demo_job()
    found = overview.last_decision()
    assert found is not None
    assert (found.job, found.what) == (job.pk, "placement 2: 3 blocks")
    factories.make_decision(job, 60, "set-shares", {"shares": {"0": 90, "1": 93, "2": 50, "3": 23}}, reason="drift")
    factories.make_decision(job, 61, "start-process", {"role": "worker", "index": 1})
    found = overview.last_decision()
    assert found is not None
    assert (found.what, found.reason, found.sequence) == ("w0 93 → 90, w2 47 → 50", "drift", 60)


def test_a_simulated_decision_is_not_the_clusters_last() -> None:
    row = Simulation.objects.create(scenario="demo", policies=["bsp"], seed=1)
    factories.make_decisions(factories.make_job(simulation=row))
    assert overview.last_decision() is None


def test_a_machine_that_is_lost_is_an_event() -> None:
    factories.demo_job()
    lost_at = START + timedelta(minutes=2)
    Agent.objects.filter(name="machine-3").update(state=Agent.State.OFFLINE, seen_at=lost_at)
    Agent.objects.create(name="never-here", credential_digest="0" * 60)
    assert overview.events()[0] == overview.EventLine(
        at=lost_at,
        kind="machine-offline",
        what="machine-3 is offline",
        reason="its connection ended; unavailable: 1 worker slot and 1 server slot",
    )
    assert "never-here is offline" not in [event.what for event in overview.events()]


def test_the_events_of_an_overview_are_few() -> None:
    job = factories.make_job()
    for sequence in range(30):
        factories.make_decision(job, sequence, "close-flag", {"flag": f"compute-w1-0.{sequence}"})
    assert len(overview.events()) == overview.EVENTS == 12


def test_a_job_that_stays_in_a_state_is_published_once() -> None:
    job = factories.make_job()
    for sequence, (state, awaited) in enumerate(
        [("starting", "hello of 2"), ("starting", "hello of 1"), ("running", "")]
    ):
        payload = {"state": state, "awaited": awaited}
        factories.make_decision(job, sequence, "move-job", payload)
    lines = [line.what for line in job_queries.decisions(job)]
    assert lines == ["job is running", "job is starting, waiting for hello of 2"]
    assert [event.what for event in overview.events()] == lines
    assert len(job_queries.decisions(job, kinds="all")) == 3


def test_a_large_machine_shows_some_of_its_slots_and_counts_the_others() -> None:
    [agent] = factories.make_agents(1, slots=1_000)
    job = factories.make_job()
    rows = (Reservation(agent=agent, role="worker", slot=7 + n, job_id=job.pk, index=n) for n in range(20))
    Reservation.objects.bulk_create(rows)
    card = fleet.machine(agent, START)
    assert (card.taken, card.worker_slots, [slot.number for slot in card.slots]) == (20, 1_000, [*range(7, 23)])
    assert card.more == "4 more in use and 980 more free"
    Reservation.objects.filter(index__gt=1).delete()
    card = fleet.machine(agent, START)
    assert (card.taken, [slot.number for slot in card.slots]) == (2, [0, 1, 2, 3, 7, 8])
    assert card.more == "994 more free"

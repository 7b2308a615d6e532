"""What waiting costs: one definition, whose parts sum up, beside the staleness that relaxed barriers pay instead."""

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest
from django.core.cache import cache
from django.test import Client

from controlplane.jobs.models import Job
from frontend.build import build_figure
from frontend.figures.rows import View
from frontend.figures.timeline import waiting_shares
from frontend.figures.waiting import waiting_price
from frontend.queries.history import History
from frontend.queries.jobs import lines
from frontend.queries.staleness import leads, staleness
from frontend.queries.stepping import stepping
from frontend.queries.timeline import window
from frontend.queries.waiting import MANY, WORST, Spent, days_of, ledger, price, rows_of, waiting
from frontend.tabs import TABS
from tests.frontend import factories
from tests.frontend.factories import BALANCED, EVEN, Pace
from tests.frontend.rows import waited
from tests.frontend.test_pages import text_of
from tests.telemetry.reports import Report, change_reports, store_reports

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    job = factories.make_job()
    factories.make_reports(job, [Pace(shares=EVEN)] * 6 + [Pace(shares=BALANCED)] * 6)
    return job


def test_workers_days_and_the_jobs_total_are_one_sum(job: Job) -> None:
    found, days = waiting(job), days_of(job)
    waited, whole = waiting_shares(window(job, View(first=0, count=20)).spans)
    assert (found.waiting_s, found.coordination_s) == (pytest.approx(job.waiting_s), pytest.approx(job.coordination_s))
    assert (found.again_s, found.share) == (0.0, pytest.approx(job.waiting_share + job.coordination_share))
    assert (waited, whole) == (pytest.approx(found.waiting_s), pytest.approx(found.whole_s))
    assert found.whole_s == pytest.approx(job.busy_s + found.lost_s)
    assert sum(spent.lost_s for spent in days.values()) == pytest.approx(found.lost_s)
    assert sum(spent.whole_s for spent in days.values()) == pytest.approx(found.whole_s)


def test_repeated_iterations_have_a_row_of_their_own(job: Job) -> None:
    once = waiting(job).waiting_s
    Job.objects.filter(pk=job.pk).update(waiting_s=once + 3.0, busy_s=job.busy_s + 5.0)
    job.refresh_from_db()
    found = waiting(job)
    assert (found.again_s, found.again_whole_s) == (pytest.approx(3.0), pytest.approx(8.0))
    assert found.share == pytest.approx(job.waiting_share + job.coordination_share)


def test_all_jobs_and_the_job_itself_agree_on_what_was_done_again(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(
        started_at=factories.START,
        waiting_s=job.waiting_s + 3.0,
        coordination_s=job.coordination_s + 1.0,
        busy_s=job.busy_s + 5.0,
    )
    change_reports(lambda row: {"at": factories.START + timedelta(days=1)} if row.iteration >= 6 else {})
    job.refresh_from_db()
    of_job, found = waiting(job), ledger(factories.START.date() + timedelta(days=1))
    (row,) = found.jobs
    for spent in (row.spent, found.total, sum((live for _, live, _ in found.days), Spent())):
        assert (spent.whole_s, spent.waiting_s, spent.coordination_s) == (
            pytest.approx(of_job.whole_s),
            pytest.approx(of_job.waiting_s),
            pytest.approx(of_job.coordination_s),
        )
    assert of_job.whole_s == pytest.approx(job.worker_seconds)


def test_the_tab_reports_what_an_update_does_where_each_is_applied_by_itself(job: Job) -> None:
    assert stepping(job) == ""
    job.spec["synchronization"]["barrier"] = {"name": "asp"}
    job.spec["optimizer"] = {"name": "adam"}
    job.save()
    assert stepping(job).startswith("Servers add up 4 updates and make one step of adam along their mean")
    assert stepping(job)[:30] in str(TABS["waiting"].context(job, {})["stepping"])


def test_a_job_whose_workers_ask_one_another_reports_it(viewer: Client, job: Job) -> None:
    assert "sampled by peers" not in text_of(viewer, f"/jobs/{job.pk}/")
    job.spec["synchronization"]["barrier"] = {"name": "pbsp", "sampling": "peers"}
    job.save()
    assert "sampled by peers" in text_of(viewer, f"/jobs/{job.pk}/")
    assert stepping(job).endswith(
        "Each worker queries its sample directly, without the control plane, before it continues."
    )


def test_of_many_workers_those_that_lost_most_are_listed_and_the_rest_is_one_row() -> None:
    one, count = waited().workers[0], MANY + 1
    workers = tuple(
        replace(one, rank=rank, label=f"w{rank}", waiting_s=float(rank), staleness=None, staleness_most=rank)
        for rank in range(count)
    )
    found = replace(waited(), workers=workers)
    rows = rows_of(found)
    assert [row.worker.rank for row in rows[:-1]] == list(range(count - 1, count - 1 - WORST, -1))
    assert [row.is_rest for row in rows] == [False] * WORST + [True]
    rest = rows[-1].worker
    assert (rest.label, rest.staleness, rest.staleness_most) == (f"{count - WORST} others", None, count - 1 - WORST)
    for name in ("whole_s", "lost_s", "waiting_s", "coordination_s", "data_s"):
        total = sum(getattr(each, name) for each in workers)
        assert sum(getattr(row.worker, name) for row in rows) == pytest.approx(total)


def test_all_workers_are_listed_if_they_are_few_or_all_are_requested() -> None:
    one = waited().workers[0]
    few, many = (
        replace(waited(), workers=tuple(replace(one, rank=rank, label=f"w{rank}") for rank in range(count)))
        for count in (MANY, MANY + 1)
    )
    assert [row.worker for row in rows_of(few)] == list(few.workers)
    assert [row.worker for row in rows_of(many, everyone=True)] == list(many.workers)


def test_the_page_says_that_the_table_is_not_all_and_shows_all_on_request(
    viewer: Client, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/jobs/{job.pk}/?tab=waiting"
    assert "that lost most" not in text_of(viewer, path)
    monkeypatch.setattr("frontend.queries.waiting.MANY", 2)
    monkeypatch.setattr("frontend.queries.waiting.WORST", 1)
    few, every = (text_of(viewer, path + more) for more in ("", "&rows=all"))
    assert "The 1 workers that lost most, of 4. Show all" in few
    assert "3 others" in few
    assert "All 4 workers. Show the 1 that lost most" in every
    assert "others" not in every


def test_viewers_of_a_tab_and_its_chart_read_the_history_once(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    read = History.windows
    monkeypatch.setattr(History, "windows", lambda *given: reads.append(1) or read(*given))
    cache.clear()
    contexts = [TABS["waiting"].context(job, {}) for _ in range(2)]
    build_figure("waiting-price", job, {})
    assert (contexts[0]["days"], len(reads)) == (contexts[1]["days"], 1)


def test_data_loading_has_a_column_and_a_bar_where_it_is_noticeable(viewer: Client, job: Job) -> None:
    path = f"/jobs/{job.pk}/?tab=waiting"
    column = 'data-label="Data loading"'
    assert column not in viewer.get(path).content.decode()
    before = waiting(job)
    change_reports(lambda row: {"data_s": 0.01, "compute_s": row.compute_s - 0.01} if row.rank == 3 else {})
    cache.clear()  # ingest would have moved the job's cursors
    found = waiting(job)
    assert (found.data_s, found.whole_s) == (pytest.approx(0.12), pytest.approx(before.whole_s))
    assert column in viewer.get(path).content.decode()
    drawn, merged = (waiting_price(each, View())["data"] for each in (found, before))
    assert [bar["name"] for bar in drawn[:2]] == ["Data loading", "Compute"]
    assert merged[0]["name"] == "Compute"
    assert np.add(drawn[0]["y"], drawn[1]["y"]).tolist() == pytest.approx(merged[0]["y"], abs=2e-3)


def test_a_night_parts_two_days(job: Job) -> None:
    change_reports(lambda row: {"at": row.at + timedelta(days=1)} if row.iteration >= 6 else {})
    days = days_of(job)
    assert list(days) == [date(2026, 3, 2), date(2026, 3, 3)]
    assert sum(spent.waiting_s for spent in days.values()) == pytest.approx(job.waiting_s)
    found = ledger(date(2026, 3, 3))
    assert [day for day, _, _ in found.days] == [date(2026, 3, 3), date(2026, 3, 2)]
    assert found.total.lost_s == pytest.approx(job.waiting_s + job.coordination_s)
    assert ledger(date(2026, 6, 1)).jobs == ()


def test_under_a_full_barrier_no_one_is_ahead_however_late_a_report_comes(job: Job) -> None:
    change_reports(lambda row: {"at": row.at + timedelta(seconds=0.2)} if row.rank == 3 else {})
    ahead, recent = staleness(job, range(4))
    assert ({int(each.max()) for each in ahead.values()}, recent) == ({0}, 12)


def test_staleness_is_how_many_iterations_the_slowest_lacked() -> None:
    """w0 takes 1 s per iteration and w1 takes 3: when w0 begins its k-th, w1 has done k // 3."""
    job = factories.make_job(spec=factories.spec(synchronization={"barrier": {"name": "asp"}}))
    rows = [(0, k, k + 1.0, 0.9) for k in range(9)] + [(1, k, 3.0 * (k + 1), 2.9) for k in range(3)]
    store_reports(
        Report(
            **dict.fromkeys(("push_s", "pull_s", "coordination_s", "cpu", "memory"), 0.0),
            waiting_s=0.1,
            job_id=job.pk,
            rank=rank,
            instance=f"w{rank}",
            generation=1,
            iteration=k,
            compute_s=busy,
            at=factories.START + timedelta(seconds=ended),
            samples=1,
            position=0,
            overran=False,
        )
        for rank, k, ended, busy in rows
    )
    Job.objects.filter(pk=job.pk).update(iteration=3)
    job.refresh_from_db()
    ahead, _ = staleness(job, range(2))
    assert {rank: each.tolist() for rank, each in ahead.items()} == {
        0: [0, 1, 2, 2, 3, 4, 4, 5, 6],
        1: [0, 0, 0],
    }
    (drawn,) = leads(job, View(ranks=(0,))).workers
    assert (drawn.rank, drawn.ahead.tolist(), drawn.elapsed_s[0]) == (0, ahead[0].tolist(), 1.0)


def test_a_price_is_shown_where_one_is_set(settings: Any, viewer: Client, job: Job) -> None:
    path = f"/jobs/{job.pk}/?tab=waiting"
    settings.WORKER_HOUR = None
    assert (price(3600.0), "PACELINE_WORKER_HOUR" in text_of(viewer, path)) == ("", True)
    settings.WORKER_HOUR = (0.4, "EUR")
    assert (price(5400.0), "<dt>Cost</dt>" in viewer.get(path).content.decode()) == ("0.60 EUR", True)


def test_the_tab_sums_up_and_leads_to_all_jobs(viewer: Client, job: Job) -> None:
    page = text_of(viewer, f"/jobs/{job.pk}/?tab=waiting")
    assert "Cost of waiting" in page
    assert "w3" in page
    assert "Under BSP" not in page
    everything = text_of(viewer, "/waiting/")
    assert "No worker time in this period." in everything  # The job ran long ago.


def test_the_page_of_all_jobs_has_what_relaxed_barriers_paid(viewer: Client, job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(started_at=factories.START)
    (found,) = ledger(factories.START.date()).jobs
    of_job = waiting(job)
    assert (found.staleness, found.spent.lost_s) == (of_job.staleness, pytest.approx(of_job.lost_s))


def test_simulated_jobs_are_listed_separately_and_cost_nothing(viewer: Client, job: Job, settings: Any) -> None:
    settings.WORKER_HOUR = (100.0, "EUR")
    Job.objects.filter(pk=job.pk).update(started_at=factories.START)
    before = ledger(factories.START.date())
    played = factories.make_job(simulation=factories.make_simulation())
    factories.make_reports(played, [Pace(shares=EVEN)] * 6)
    Job.objects.filter(pk=played.pk).update(started_at=factories.START)
    found = ledger(factories.START.date())
    assert (found.total, [each.job for each in found.jobs]) == (before.total, [job])
    ((_, live, simulated),) = found.days
    assert (live, simulated) == (before.total, found.simulated)
    assert simulated.lost_s == pytest.approx(waiting(Job.objects.get(pk=played.pk)).lost_s)


def test_lists_show_the_policies_that_hold_now(viewer: Client, job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(started_at=factories.START)
    choices = {"batching": {"name": "lb-bsp-linear", "parameters": {}}}
    factories.make_decision(job, 9, "change-policies", {"choices": choices}, iteration=5)
    (line,) = lines([Job.objects.get(pk=job.pk)], factories.START)
    assert (line.policy, line.barrier, line.changed) == ("lb-bsp-linear", "bsp", True)
    assert [each.batching for each in ledger(factories.START.date()).jobs] == ["lb-bsp-linear"]
    row = viewer.get("/api/v1/jobs").json()["results"][0]
    assert row["policies"]["batching"] == "lb-bsp-linear"

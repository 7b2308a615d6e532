"""Every number can be traced: a flag to its evidence, a share to its decision, a push to those who took it up."""

import pytest
from django.test import Client

from controlplane.jobs.models import Decision, Job
from frontend.figures.rows import View
from frontend.queries.acknowledgements import acknowledgements
from frontend.queries.effects import effects, predictions
from frontend.queries.evidence import Fact, Reference, Since, cost, evidence_of, facts
from frontend.queries.lanes import lanes
from tests.frontend import factories
from tests.frontend.factories import BALANCED, EVEN, Pace
from tests.frontend.test_pages import text_of
from tests.telemetry.reports import Report, change_reports

pytestmark = pytest.mark.django_db

MEASURED = {
    "ratio": 3.9,
    "measure": "others",
    "slow_iterations": 8,
    "window": 10,
    "confidence": 0.999,
    "cause": "cpu",
    "busy_s": 0.264,
    "iteration_s": 0.264,
    "without_s": 0.132,
    "cost_s": 0.132,
}


@pytest.fixture
def job() -> Job:
    """Even up to iteration 20, then w3 is flagged, and balanced from there on."""
    job = factories.make_job()
    factories.make_reports(job, [Pace(shares=EVEN)] * 20 + [Pace(shares=BALANCED)] * 20)
    shares(job, 1, 0, EVEN)
    factories.make_decision(job, 2, "raise-flag", {"flag": "compute-w3-0.1", "rank": 3}, reason="w3 is slow")
    shares(job, 3, 20, BALANCED, predicted_s=0.05)
    factories.make_flag(job, key="compute-w3-0.1", evidence=MEASURED)
    return job


def shares(
    job: Job, sequence: int, iteration: int, given: tuple[int, ...], predicted_s: float | None = None
) -> Decision:
    payload = {"generation": 1, "shares": {str(rank): share for rank, share in enumerate(given)}}
    payload["predicted_s"] = predicted_s
    return factories.make_decision(
        job, sequence, "set-shares", payload, reason="in proportion to speed", iteration=iteration
    )


def test_a_flag_leads_to_its_decision_its_numbers_and_what_was_done(job: Job) -> None:
    (flag,) = job.flags.all()
    behind = evidence_of(job, [flag])[flag.pk]
    assert behind.raised == Reference(incarnation=0, sequence=2)
    assert (behind.cost, behind.is_quiet) == ("no current impact", True), "balancing has ended it since"
    assert behind.since == Since(before=64, after=23, decision=Reference(incarnation=0, sequence=3))
    assert behind.left_out is None
    assert [(fact.name, fact.text) for fact in behind.facts] == [
        ("Slowdown", "3.9 times the others' median"),
        ("Frequency", "in 8 of the last 10 iterations"),
        ("Confidence", "99.9%"),
        ("Cause", "cpu"),
        ("Busy time per iteration", "264 ms"),
        ("Iteration time", "264 ms"),
        ("Iteration time without it", "132 ms"),
    ]


def test_what_happened_after_a_flag_was_closed_was_not_done_about_it(job: Job) -> None:
    Decision.objects.filter(sequence=3).update(sequence=5)
    factories.make_decision(job, 4, "close-flag", {"flag": "compute-w3-0.1"})
    (flag,) = job.flags.all()
    assert evidence_of(job, [flag])[flag.pk].since is None


def test_a_worker_that_was_left_out_is_reported(job: Job, viewer: Client) -> None:
    factories.make_decision(job, 9, "leave-out", {"rank": 3, "iteration": 30})
    (flag,) = job.flags.all()
    assert evidence_of(job, [flag])[flag.pk].left_out == Reference(incarnation=0, sequence=9)
    assert "Since then: excluded" in text_of(viewer, f"/jobs/{job.pk}/")


def test_evidence_of_an_unknown_format_lists_its_fields() -> None:
    assert facts({"lost_for_s": 4.25, "machine": "m3"}) == [
        Fact(name="Lost for s", text="4.25"),
        Fact(name="Machine", text="m3"),
    ]


def test_a_cost_is_shown_with_what_it_is_a_part_of_and_not_where_the_finding_reports_that_there_is_none() -> None:
    little = MEASURED | {"iteration_s": 0.122, "without_s": 0.117, "cost_s": 0.005}
    assert (cost({}), cost(little)) == ("", "no current impact")
    exchange = MEASURED | {"iteration_s": 0.012, "without_s": 0.002, "cost_s": 0.01}
    assert cost(exchange, subject="server") == "costs 10 ms per exchange with servers: 6 times as fast without it"


def test_the_page_links_flags_and_shares_to_their_decisions(job: Job, viewer: Client) -> None:
    found = lanes(job).decided
    assert found is not None
    assert (found.sequence, found.iteration, found.reason) == (3, 20, "in proportion to speed")
    body = viewer.get(f"/jobs/{job.pk}/").content.decode()
    for address in ("decisions=flags&amp;before=3#decision-0-2", "decisions=shares&amp;before=4#decision-0-3"):
        assert f'href="/jobs/{job.pk}/?tab=decisions&amp;{address}"' in body
    log = viewer.get(f"/jobs/{job.pk}/?tab=decisions&decisions=flags&before=3").content.decode()
    assert 'id="decision-0-2"' in log


def test_a_push_is_acknowledged_by_who_reports_the_iteration_that_it_holds_from(job: Job) -> None:
    rows = list(Decision.objects.filter(kind="set-shares").order_by("sequence"))

    def late(row: Report) -> dict[str, object] | None:
        if row.iteration != 20 or not row.rank:
            return {}
        return {1: {"coordination_s": 0.5}, 2: {"samples": 40}, 3: None}[row.rank]

    change_reports(late)
    _, late = (acknowledgements(job, rows)[row.pk] for row in rows)
    assert (late.sent, late.received, late.missing, late.deviating, late.over) == (4, 3, (3,), (2,), True)
    assert (late.latency_s, late.slowest_s) == (pytest.approx(0.001), 0.5)
    coming = shares(job, 7, 60, BALANCED)
    found = acknowledgements(job, [coming])[coming.pk]
    assert (found.received, found.missing, found.latency_s, found.over) == (0, (0, 1, 2, 3), None, False)


def test_a_change_of_policies_is_acknowledged_and_life_cycles_are_not_pushed(job: Job) -> None:
    change = factories.make_decision(job, 8, "change-policies", {"first_iteration": 30, "generation": 1, "choices": {}})
    other = factories.make_decision(job, 9, "move-job", {"state": "running"})
    found = acknowledgements(job, [change, other])
    assert found.keys() == {change.pk}
    assert (found[change.pk].sent, found[change.pk].received) == (4, 4)


def test_the_log_reports_who_took_a_decision_up_and_marks_what_was_mispredicted(job: Job, viewer: Client) -> None:
    shares(job, 7, 60, BALANCED)
    page = text_of(viewer, f"/jobs/{job.pk}/?tab=decisions&decisions=shares")
    assert "4 of 4 workers order latency 1 ms, maximum 1 ms" in page
    assert "0 of 4 workers pending: w0 w1 w2 w3" in page
    assert "slowest worker: 50 ms predicted, 101 ms measured off by 102%" in page


def test_predictions_are_drawn_beside_what_the_first_iteration_under_them_was(job: Job) -> None:
    shares(job, 7, 60, BALANCED, predicted_s=0.1)  # not worked under yet
    found, row = predictions(job, View()), Decision.objects.get(sequence=3)
    assert (found.iteration.tolist(), found.predicted_s.tolist()) == ([20], [0.05])
    assert found.off.tolist() == [pytest.approx(effects(job, [row])[row.pk].miss)]

"""The sentence above the lanes: who sets the pace, who waits, and what balancing was worth."""

from dataclasses import replace

import pytest

from frontend.figures.lanes import Lane, Lanes, Phases, Verdict, estimated, verdict


def phases(compute_s: float, waiting_s: float, data_s: float = 0.0) -> Phases:
    return Phases(data_s=data_s, compute_s=compute_s, communication_s=0.0, waiting_s=waiting_s, coordination_s=0.0)


def lane(rank: int, share: int, now: Phases, even: Phases | None = None) -> Lane:
    return Lane(rank=rank, machine=f"m{rank}", share=share, now=now, even_share=64, even=even)


def lanes(
    *rows: Lane, roster: int | None = None, adaptive: bool = True, over: bool = False, failed: bool = False
) -> Lanes:
    return Lanes(
        rows=rows,
        roster=roster or len(rows),
        reporting=len(rows),
        iterations=10,
        adaptive=adaptive,
        over=over or failed,
        failed=failed,
    )


UNEVEN = (lane(0, 64, phases(0.1, 0.3)), lane(1, 64, phases(0.4, 0.0)))
BALANCED = (
    lane(0, 102, phases(0.16, 0.0), phases(0.08, 0.32)),
    lane(1, 26, phases(0.16, 0.0), phases(0.4, 0.0)),
)


def test_before_the_first_report_nothing_is_claimed() -> None:
    assert verdict(lanes()) == Verdict(tone="calm", headline="No iteration reported yet")


def test_a_single_worker_waits_for_no_one() -> None:
    assert verdict(lanes(UNEVEN[0])).headline == "Single worker: no waiting for others"


def test_the_slowest_worker_is_named_with_what_it_costs_the_others() -> None:
    assert verdict(lanes(*UNEVEN, adaptive=False)) == Verdict(
        tone="watch",
        headline="w1 sets the pace: the other workers spend 75% of their time waiting for it",
        detail="With uniform batching, all workers have the same share, so this will not change by itself.",
    )


def test_a_finished_job_is_described_in_the_past_tense() -> None:
    assert verdict(lanes(*UNEVEN, adaptive=False, over=True)) == Verdict(
        tone="watch",
        headline="w1 set the pace: the other workers spent 75% of their time waiting for it",
        detail="With uniform batching, all workers had the same share.",
    )


def test_a_balanced_job_reports_what_that_was_worth() -> None:
    assert verdict(lanes(*BALANCED)) == Verdict(
        tone="good",
        headline="Balanced: all workers finish together",
        detail="Compared with equal shares, waiting changed from 40% to 0% and the iteration time from 400 to 160 ms:"
        " 2.5 times as fast.",
    )


def test_what_equal_shares_would_take_is_estimated_by_time_per_sample_and_reported_to_be() -> None:
    now = [lane(0, 96, replace(phases(0.24, 0.03), communication_s=0.01)), lane(1, 32, phases(0.28, 0.0))]
    rows = estimated(now)
    slow, fast = rows[1].even, rows[0].even
    assert slow is not None
    assert fast is not None
    assert (slow.compute_s, slow.waiting_s) == (pytest.approx(0.56), pytest.approx(0.0))
    assert (fast.compute_s, fast.communication_s) == (pytest.approx(0.16), 0.01)
    assert fast.whole_s == pytest.approx(slow.whole_s)
    assert [row.now for row in rows] == [row.now for row in now]
    found = replace(lanes(*rows), estimated=True, run_s=0.3)
    assert verdict(found).detail == (
        "With equal shares an iteration would take up to 560 ms instead of 280 ms, estimated from each worker's time"
        " per sample: up to 2.0 times as long."
    )
    assert found.gained is not None
    assert found.gained.run is None


def test_a_worker_without_samples_gives_no_estimate() -> None:
    now = [lane(0, 128, phases(0.24, 0.0)), lane(1, 0, phases(0.0, 0.24))]
    assert estimated(now) == now


def test_a_failed_job_is_not_praised() -> None:
    assert verdict(lanes(*BALANCED, roster=4, failed=True)) == Verdict(
        tone="bad",
        headline="The job failed. Its last iterations are shown.",
        detail="Only 2 of 4 workers took part in these iterations.",
    )


def test_those_who_are_left_are_not_called_all() -> None:
    pair = (lane(0, 128, phases(0.16, 0.0)), lane(1, 128, phases(0.16, 0.0)))
    assert verdict(lanes(*pair, roster=4)) == Verdict(
        tone="good",
        headline="Balanced: the 2 remaining workers finish together",
        detail="Only 2 of 4 workers take part in these iterations.",
    )


def test_the_even_split_is_shown_only_once_shares_have_moved() -> None:
    same = tuple(lane(each.rank, 64, each.now, each.now) for each in UNEVEN)
    assert (lanes(*same).has_even, lanes(*BALANCED).has_even) == (False, True)


def test_all_bars_share_the_scale_of_the_longest_iteration() -> None:
    assert lanes(*BALANCED).scale_s == 0.4


def test_a_job_that_waits_for_orders_is_not_called_balanced() -> None:
    slow = Phases(data_s=0.0, compute_s=0.08, communication_s=0.0, waiting_s=0.0, coordination_s=0.1)
    assert verdict(lanes(lane(0, 64, slow), lane(1, 64, slow))) == Verdict(
        tone="watch",
        headline="Coordination takes 56% of an iteration (waiting for the control plane)",
        detail="Apart from that, all workers finish together.",
    )


def test_balance_that_made_iterations_longer_is_no_praise() -> None:
    longer = (
        lane(0, 102, phases(0.5, 0.0), phases(0.08, 0.32)),
        lane(1, 26, phases(0.5, 0.0), phases(0.4, 0.0)),
    )
    found = verdict(lanes(*longer))
    assert found.tone == "watch"
    assert found.headline == "Balanced, but slower than with equal shares: all workers finish together"
    assert found.detail.endswith("the iteration time from 400 to 500 ms: 0.8 times as fast.")


def test_what_waiting_for_orders_costs_is_not_hidden() -> None:
    slow = Phases(data_s=0.0, compute_s=0.08, communication_s=0.0, waiting_s=0.0, coordination_s=0.02)
    assert verdict(lanes(lane(0, 64, slow), lane(1, 64, slow))).detail == "Coordination takes 20% of an iteration."


def test_data_loading_is_drawn_apart_where_some_worker_waits_noticeably_for_its_batches() -> None:
    little, much = phases(0.4, 0.0, data_s=0.001), phases(0.2, 0.0, data_s=0.2)
    assert [lanes(UNEVEN[0], lane(1, 64, now)).is_loading for now in (little, much)] == [False, True]
    assert (much.processing_s, much.whole_s) == (0.4, 0.4)


def test_a_worker_that_sets_the_pace_for_want_of_data_is_reported() -> None:
    starved = lane(1, 64, phases(0.1, 0.0, data_s=0.3))
    assert verdict(lanes(UNEVEN[0], starved)).detail.startswith("w1 waits for its next batch in 75% of its time")
    assert "next batch" not in verdict(lanes(*UNEVEN)).detail

"""What a run says that it gained, from measurements that are made up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cli.gain import _by_iteration as by_iteration
from paceline.cli.gain import _estimated_s as estimated_s
from paceline.cli.gain import gained
from paceline.client.columns import Metrics, Series


def run(*stretches: tuple[int, list[float], list[float], list[int]]) -> Metrics:
    """Stretches of iterations: how many, and each rank's seconds, waiting and samples; the rest is computing."""
    series = []
    for rank in range(len(stretches[0][1])):
        rows = [
            (seconds[rank], seconds[rank] - waiting[rank], waiting[rank], samples[rank])
            for count, seconds, waiting, samples in stretches
            for _ in range(count)
        ]
        for metric, values in zip(
            ("iteration_s", "compute_s", "waiting_s", "samples"), zip(*rows, strict=True), strict=True
        ):
            of_metric = [float(value) for value in values]
            series.append(Series(metric=metric, worker=rank, iterations=list(range(len(rows))), values=of_metric))
    return Metrics(job=1, series=series)


def test_even_shares_are_compared_with_the_last_ones() -> None:
    metrics = run(
        (16, [9.0, 9.0], [0.0, 0.0], [32, 32]),
        (10, [0.93] * 2, [0.4, 0.0], [32, 32]),
        (40, [0.6] * 2, [0.0, 0.03], [43, 21]),
    )
    assert gained(metrics, "URL") == (
        "66 iterations, the last 20 of 600 ms, 3% of it waiting; with equal shares 930 ms, 22% waiting: "
        "1.55 times as fast. Shares: 43 / 21. URL"
    )


def test_a_warm_up_with_even_shares_is_no_comparison_and_equal_shares_are_estimated() -> None:
    """The first iterations took five times as long for other reasons: 0.6 s of 21 samples are 0.914 s of 32."""
    metrics = run((5, [3.0, 3.0], [0.0, 0.0], [32, 32]), (40, [0.6] * 2, [0.0, 0.0], [43, 21]))
    assert gained(metrics, "URL") == (
        "45 iterations, the last 20 of 600 ms, 0% of it waiting; equal shares would take up to 914 ms, "
        "by each rank's time per sample. Shares: 43 / 21. URL"
    )


def test_ranks_that_got_equal_shares_again_have_gained_nothing() -> None:
    metrics = run(
        (5, [3.0, 3.0], [0.0, 0.0], [32, 32]),
        (20, [0.7, 0.7], [0.0, 0.0], [36, 28]),
        (40, [0.6] * 2, [0.0, 0.0], [33, 31]),
    )
    assert gained(metrics, "URL") == (
        "65 iterations, the last 20 of 600 ms, 0% of it waiting; the ranks are about equally fast. Shares: 33 / 31. URL"
    )


@given(
    seconds_per_sample=st.lists(st.floats(1e-4, 1e-1), min_size=2, max_size=6),
    constant_s=st.floats(0.0, 0.1),
    batch=st.integers(64, 512),
)
def test_the_estimate_is_exact_without_constant_times_and_never_too_small(
    seconds_per_sample: list[float], constant_s: float, batch: int
) -> None:
    """Ranks that have shares in proportion to their speed, and wait for no one but the slowest."""
    whole = sum(1 / each for each in seconds_per_sample)
    shares = [max(1, round(batch / each / whole)) for each in seconds_per_sample]
    compute = [constant_s + share * each for share, each in zip(shares, seconds_per_sample, strict=True)]
    waiting = [max(compute) - each for each in compute]
    rows = by_iteration(run((30, [max(compute)] * len(compute), waiting, shares)))
    equal = sum(shares) / len(shares)
    truly = constant_s + max(equal * each for each in seconds_per_sample)
    estimated = estimated_s(rows, range(30))
    assert estimated >= truly * (1 - 1e-9) or max(shares) == min(shares)
    if not constant_s:
        assert estimated == pytest.approx(truly)


def test_shares_that_stayed_even_are_reported_with_why() -> None:
    said = gained(run((10, [0.5, 0.5], [0.0, 0.0], [33, 32])), "URL")
    assert said == (
        "10 iterations of 500 ms, with equal shares throughout: "
        "the ranks were equally fast, or there were too few iterations to compare. URL"
    )
    assert (
        gained(run((3, [1.5], [0.0], [32])), "URL")
        == "3 iterations of 1.50 s, with equal shares throughout: one rank. URL"
    )


def test_without_reports_of_all_ranks_no_gain_is_claimed() -> None:
    assert (
        gained(Metrics(job=1, series=[]), "URL")
        == "No iteration was reported by all ranks; see URL for the reports received."
    )


def test_shares_that_were_uneven_from_the_begin_have_nothing_to_compare_with() -> None:
    said = gained(run((5, [0.5, 0.5], [0.0, 0.0], [40, 24])), "URL")
    assert said == (
        "5 iterations, the last 5 of 500 ms, 0% of it waiting; equal shares would take up to 667 ms, "
        "by each rank's time per sample. Shares: 40 / 24. URL"
    )


def test_the_short_iteration_at_the_end_of_a_pass_does_not_affect_shares() -> None:
    metrics = run(
        (5, [0.5, 0.5], [0.0, 0.0], [32, 32]),
        (1, [0.1, 0.1], [0.0, 0.0], [9, 2]),
        (5, [0.5, 0.5], [0.0, 0.0], [32, 32]),
    )
    assert gained(metrics, "URL").startswith("10 iterations of 500 ms, with equal shares throughout")


def test_iterations_that_one_rank_has_not_reported_do_not_count() -> None:
    metrics = run((4, [0.5, 0.5], [0.0, 0.0], [32, 32]))
    short = [
        Series(metric=one.metric, worker=1, iterations=[0], values=one.values[:1])
        for one in metrics.series
        if one.worker
    ]
    kept = [one for one in metrics.series if not one.worker]
    assert gained(Metrics(job=1, series=[*kept, *short]), "URL").startswith("1 iterations of 500 ms")


def test_a_larger_batch_is_compared_by_its_samples() -> None:
    metrics = run((30, [0.4] * 2, [0.2, 0.0], [32, 32]), (20, [0.6] * 2, [0.0, 0.0], [96, 32]))
    assert gained(metrics, "URL") == (
        "50 iterations, the last 20 of 600 ms, 0% of it waiting; with equal shares 400 ms, 25% waiting: "
        "1.33 times as fast. Shares: 96 / 32. URL"
    )

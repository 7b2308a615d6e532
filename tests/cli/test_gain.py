"""What a run says that it gained, from measurements that are made up."""

from paceline.cli.gain import gained
from paceline.client.columns import Metrics, Series


def run(*stretches: tuple[int, list[float], list[float], list[int]]) -> Metrics:
    """Stretches of iterations: how many, and each rank's seconds, waiting and samples in them."""
    world = len(stretches[0][1])
    series = []
    for metric, at in (("iteration_s", 1), ("waiting_s", 2), ("samples", 3)):
        for rank in range(world):
            values = [float(stretch[at][rank]) for stretch in stretches for _ in range(stretch[0])]  # type: ignore[index]
            series.append(Series(metric=metric, worker=rank, iterations=list(range(len(values))), values=values))
    return Metrics(job=1, series=series)


def test_even_shares_are_compared_with_the_last_ones() -> None:
    metrics = run(
        (2, [9.0, 9.0], [0.0, 0.0], [32, 32]),
        (6, [0.93] * 2, [0.4, 0.0], [32, 32]),
        (40, [0.6] * 2, [0.0, 0.03], [43, 21]),
    )
    assert gained(metrics, "URL") == (
        "48 iterations, the last 20 of 600 ms, 3% of it waiting; with even shares 930 ms, 22% waiting: "
        "1.55 times as fast. Shares: 43 / 21. URL"
    )


def test_shares_that_stayed_even_are_told_with_why() -> None:
    said = gained(run((10, [0.5, 0.5], [0.0, 0.0], [33, 32])), "URL")
    assert said == (
        "10 iterations of 500 ms, with even shares throughout: "
        "the ranks were equally fast, or there were too few iterations to compare. URL"
    )
    assert (
        gained(run((3, [1.5], [0.0], [32])), "URL")
        == "3 iterations of 1.50 s, with even shares throughout: one rank. URL"
    )


def test_a_job_of_which_nothing_was_heard_claims_nothing() -> None:
    assert (
        gained(Metrics(job=1, series=[]), "URL")
        == "No iteration was reported by all ranks; see URL for the reports received."
    )


def test_shares_that_were_uneven_from_the_begin_have_nothing_to_compare_with() -> None:
    said = gained(run((5, [0.5, 0.5], [0.0, 0.0], [40, 24])), "URL")
    assert said == "5 iterations, the last 5 of 500 ms, 0% of it waiting. Shares: 40 / 24. URL"


def test_the_short_iteration_at_the_end_of_a_pass_says_nothing_about_shares() -> None:
    metrics = run(
        (5, [0.5, 0.5], [0.0, 0.0], [32, 32]),
        (1, [0.1, 0.1], [0.0, 0.0], [9, 2]),
        (5, [0.5, 0.5], [0.0, 0.0], [32, 32]),
    )
    assert gained(metrics, "URL").startswith("10 iterations of 500 ms, with even shares throughout")


def test_iterations_that_one_rank_has_not_reported_do_not_count() -> None:
    metrics = run((4, [0.5, 0.5], [0.0, 0.0], [32, 32]))
    short = [
        Series(metric=one.metric, worker=1, iterations=[0], values=one.values[:1])
        for one in metrics.series
        if one.worker
    ]
    kept = [one for one in metrics.series if not one.worker]
    assert gained(Metrics(job=1, series=[*kept, *short]), "URL").startswith("1 iterations of 500 ms")

"""The demo's own judgement, on measurements that are made up."""

import pytest

from controlplane.api.demo.record import Record
from controlplane.api.demo.scenarios import BASELINE, CHALLENGER, PLAIN, SCENARIOS, Run, chosen_run
from controlplane.api.demo.verdict import (
    Summary,
    judge,
    judge_chosen,
    speed_up,
    summarise,
    summarise_by_clock,
    what_compares,
)
from controlplane.jobs.validation import validated_spec
from controlplane.policies.registry import catalogue
from paceline.client.columns import Series

DIGITS = SCENARIOS["digits"]
PROPORTIONAL = (93, 93, 47, 23)


def record(iteration_s: float, *, shares: tuple[int, ...] = PROPORTIONAL, accuracy: float = 0.95) -> Record:
    """60 iterations, all alike, of which half the time is waiting; accuracy rises in steps up to ``accuracy``."""
    made = Record()
    iterations = list(range(60))
    for metric, value in (("iteration_s", iteration_s), ("waiting_s", iteration_s / 2), ("loss", 0.5)):
        made.absorb([series(metric, rank, iterations, [value] * 60) for rank in range(4)])
    made.absorb([series("samples", rank, iterations, [shares[rank]] * 60) for rank in range(4)])
    made.absorb([series("accuracy", None, [0, 20, 40, 60], [0.1, 0.8, 0.93, accuracy])])
    return made


def series(metric: str, rank: int | None, iterations: list[int], values: list[float]) -> Series:
    return Series(metric=metric, worker=rank, iterations=iterations, values=values)


def test_a_run_is_summarised_by_its_own_measurements() -> None:
    assert summarise("BSP", record(0.25), DIGITS) == Summary(
        label="BSP", seconds_to_target=10.0, mean_iteration_s=0.25, lost_share=0.5, final_accuracy=0.95
    )


def test_a_target_that_was_not_reached_has_no_time() -> None:
    made = Record()
    made.absorb([series("accuracy", None, [0, 20], [0.1, 0.8])])
    assert made.seconds_to(0.9) is None


def test_what_is_reported_again_counts_once() -> None:
    made = record(0.25)
    made.absorb([series("iteration_s", 0, [59], [0.25])])
    assert made.mean_iteration_s() == 0.25
    assert len(made.iterations) == 60


def test_all_bars_hold_where_balancing_works() -> None:
    bars = judge(DIGITS, record(0.25, shares=(64,) * 4), record(0.1))
    assert [bar.holds for bar in bars] == [True] * 4
    assert bars[0].sentence == ("mean iteration time after 30 iterations, LB-BSP to BSP: 0.400, expected at most 0.45")
    assert speed_up(record(0.25), record(0.1)) == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("challenger", "failed"),
    [
        (record(0.2), "mean iteration time after 30 iterations, LB-BSP to BSP: 0.800, expected at most 0.45"),
        (
            record(0.1, accuracy=0.94),
            "largest difference in accuracy at the same iteration: 1.00 points over 4 evaluations, "
            "expected at most 0.5 points",
        ),
        (
            record(0.1, shares=(64, 64, 64, 64)),
            "settled shares: 64.0, 64.0, 64.0, 64.0, off by at most 40.7, "
            "expected within 2 samples of proportional to speed (93.1, 93.1, 46.5, 23.3)",
        ),
    ],
)
def test_a_bar_that_fails_reports_what_was_found(challenger: Record, failed: str) -> None:
    bars = judge(DIGITS, record(0.25), challenger)
    assert [bar.sentence for bar in bars if not bar.holds] == [failed]


def test_low_accuracy_fails_even_if_both_agree() -> None:
    bars = judge(DIGITS, record(0.25, accuracy=0.85), record(0.1, accuracy=0.85))
    assert [bar.sentence for bar in bars if not bar.holds] == [
        "accuracy at the end of both runs: 0.8500, expected at least 0.9"
    ]


def test_a_run_without_measurements_holds_no_bar() -> None:
    assert not any(bar.holds for bar in judge(DIGITS, Record(), Record()))


@pytest.mark.parametrize("run", [BASELINE, CHALLENGER])
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_is_a_job_that_can_be_submitted(name: str, run: Run) -> None:
    document = SCENARIOS[name].spec(run, iterations=60)
    assert validated_spec(document).global_batch == 256


SHOWN = [(entry.question, entry.name) for entry in catalogue() if entry.question in PLAIN]


@pytest.mark.parametrize(("question", "name"), SHOWN)
def test_every_policy_can_be_shown_beside_plain_bsp(question: str, name: str) -> None:
    run = chosen_run({question: name})
    spec = validated_spec(DIGITS.spec(run, iterations=60))
    assert getattr(spec.synchronization, question).name == name
    assert what_compares(run).endswith(".")
    assert ("Both runs are plain BSP" in what_compares(run)) is (name == PLAIN[question]["name"])


def test_where_workers_continue_by_themselves_time_is_the_scorers() -> None:
    made = Record()
    made.absorb([series("iteration_s", 0, [0, 1, 2], [0.1, 0.2, 0.3])])
    made.absorb([series("iteration_s", 1, [0, 1], [9.0, 9.0])])
    made.absorb([series("samples", 0, [0, 1, 2], [8.0] * 3), series("samples", 1, [0, 1], [8.0] * 2)])
    made.absorb([series("accuracy", None, [0, 2, 3], [0.1, 0.93, 0.95])])
    run = summarise_by_clock("asp", made, DIGITS)
    assert run.seconds_to_target == pytest.approx(0.3)
    assert (run.seconds, run.samples, run.updates) == (pytest.approx(0.6), 40, 5)
    assert [bar.name for bar in judge_chosen(DIGITS, made, made)] == ["accuracy at the end of both runs"]

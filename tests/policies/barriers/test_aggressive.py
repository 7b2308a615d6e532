"""A-BSP, Alg. 1, with ruling 17."""

from typing import Any

import pytest

from controlplane.core.barriers import Cut, Processed
from controlplane.policies.barriers.adaptive import WINDOW
from controlplane.protocol.spec import SpecError
from tests.policies.cluster import resolve


class Tasks:
    """Words of progress, and what is decided."""

    def __init__(self, total: int, **parameters: Any) -> None:
        self.barrier = resolve("barrier", "aggressive", **parameters)
        self.total = total
        self.state, self.cuts = self.barrier.begin({}, None)

    def say(
        self, rank: int, samples: int, *, iteration: int = 0, requests: bool = False, loss: float | None = None
    ) -> Cut | None:
        processed = Processed(
            rank=rank, iteration=iteration, samples=samples, requests=requests, total=self.total, loss=loss
        )
        self.state, cut = self.barrier.observe(processed, self.state)
        assert cut is None or isinstance(cut, Cut)
        return cut


def test_example_of_figure_5() -> None:
    """Three tasks of 1,000 points, ratio 0.5: 1,800 of 3,000 are processed at the request (section 3.2.1)."""
    tasks = Tasks(3000, ratio=0.5)
    assert tasks.say(0, 500) is None
    assert tasks.say(1, 250) is None
    assert tasks.say(2, 200) is None
    assert tasks.say(1, 450) is None
    assert tasks.say(2, 350) is None
    cut = tasks.say(0, 1000, requests=True)
    assert cut == Cut(
        iteration=0,
        processed=1800,
        total=3000,
        reason="w0 has finished iteration 0 and 1,800 of 3,000 samples are processed (0.60, asked for 0.50): "
        "all stop and synchronize",
    )


def test_nothing_is_decided_before_the_first_request() -> None:
    tasks = Tasks(300, ratio=0.1)
    assert tasks.say(0, 99) is None
    assert tasks.say(1, 99) is None


def test_decision_is_taken_again_with_every_word_of_progress() -> None:
    tasks = Tasks(300, ratio=0.5)
    assert tasks.say(0, 100, requests=True) is None
    assert tasks.say(1, 40) is None
    assert tasks.say(2, 9) is None
    assert tasks.say(2, 10) is not None


def test_equality_signals_and_only_once() -> None:
    tasks = Tasks(200, ratio=0.5)
    assert tasks.say(0, 100, requests=True) is not None
    assert tasks.say(1, 90) is None
    assert tasks.say(1, 100, requests=True) is None


def test_full_ratio_is_bsp() -> None:
    tasks = Tasks(200, ratio=1.0)
    assert tasks.say(0, 100, requests=True) is None
    assert tasks.say(1, 99) is None
    assert tasks.say(1, 100, requests=True) is None


def test_ratio_of_zero_stops_with_the_first_request() -> None:
    assert Tasks(200, ratio=0.0).say(0, 100, requests=True) is not None


def test_iterations_are_counted_apart() -> None:
    tasks = Tasks(200, ratio=0.75)
    tasks.say(0, 100, requests=True)
    assert tasks.say(1, 60, iteration=1) is None
    assert tasks.say(1, 50) is not None


def test_message_of_a_complete_iteration_is_ignored() -> None:
    tasks = Tasks(200)
    tasks.state = tasks.barrier.close(4, tasks.state)
    assert tasks.say(0, 100, iteration=4, requests=True) is None
    assert tasks.state.tallies == {}


def test_who_died_counts_neither_with_its_share_nor_with_its_progress() -> None:
    tasks = Tasks(300, ratio=0.6)
    tasks.say(0, 100, requests=True)
    tasks.say(2, 20)
    tasks.state, cuts = tasks.barrier.begin({2: 100}, tasks.state)
    assert cuts == []
    assert tasks.say(1, 20) is not None


def test_death_may_be_what_reaches_the_ratio() -> None:
    tasks = Tasks(300, ratio=0.5)
    tasks.say(0, 100, requests=True)
    tasks.state, cuts = tasks.barrier.begin({2: 100}, tasks.state)
    assert [(cut.processed, cut.total) for cut in cuts] == [(100, 200)]


def run(tasks: Tasks, losses: list[float], begin: int) -> float:
    for number, loss in enumerate(losses, start=begin):
        tasks.say(0, 100, iteration=number, loss=loss)
    return float(tasks.state.noise.ratio)


def test_adaptive_ratio_stays_low_while_the_loss_falls_and_grows_in_noise() -> None:
    tasks = Tasks(200, ratio="adaptive")
    falling = [2.0 * 0.95**number for number in range(60)]
    assert run(tasks, falling, 0) == 0.5
    noisy = [0.1 + 0.01 * (-1) ** number for number in range(WINDOW + 30)]
    assert run(tasks, noisy, 60) > 0.9


def test_ratio_beyond_one_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(SpecError, match="ratio between 0 and 1, or adaptive"):
        resolve("barrier", "aggressive", ratio=1.5)

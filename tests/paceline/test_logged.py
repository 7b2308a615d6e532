"""What a script hands over as numbers never stops it: what is none, or too much, is named and left out."""

from typing import Any

import pytest
import torch

from controlplane.protocol.messages import MAX_LOGGED, IterationReport
from tests.paceline.ranks import alone, paced


def logged(*each: dict[str, Any], loss: Any = 1.0) -> tuple[list[IterationReport], list[str]]:
    pacer, script = paced(0, 1)
    for place, _ in enumerate(pacer.loader(range(4 * len(each)), 4)):
        pacer.log(**each[place])
        pacer.step(loss)
    pacer.close()
    return script.all_said(IterationReport), sorted(pacer._logged_sentences)


def test_numbers_and_tensors_of_one_travel_with_their_iteration() -> None:
    reports, said = logged({"lr": 0.5, "norm": torch.tensor([2.0])}, {}, {"lr": float("nan"), "epoch": 1})
    assert [report.logged for report in reports] == [{"lr": 0.5, "norm": 2.0}, {}, {"epoch": 1.0}]
    assert said == []


def test_more_names_than_a_job_keeps_are_left_out_with_one_sentence() -> None:
    reports, said = logged({f"s{k:02}": k for k in range(MAX_LOGGED)}, {"s00": 1, "late": 2, "later": 3})
    assert [len(report.logged) for report in reports] == [MAX_LOGGED, 1]
    assert said[0] == (
        "log(): 'late' and further names are dropped: a job keeps 32 series, and has s00, s01, s02 and others; put"
        " what varies into values, not into names"
    )


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("high", "'high'"),
        (None, "None"),
        ([1.0], "[1.0]"),
        (torch.zeros(2), "a tensor with 2 elements"),
        (10**400, "1000"),
    ],
)
def test_what_is_no_number_is_named_and_left_out(value: Any, found: str) -> None:
    reports, said = logged({"lr": value, "epoch": 1})
    assert reports[0].logged == {"epoch": 1.0}
    (sentence,) = said
    assert sentence.startswith(f"log(lr=...): found {found}")
    assert sentence.endswith("expected a number or a tensor with one element; it is dropped")


def test_a_loss_that_is_no_number_does_not_stop_the_loop() -> None:
    reports, said = logged({}, {}, loss=torch.zeros(3))
    assert len(reports) == 2
    assert said == [
        "step(loss): found a tensor with 3 elements, expected a number or a tensor with one element; it is dropped"
    ]


def test_a_name_that_is_too_long_is_left_out() -> None:
    reports, said = logged({"x" * 300: 1.0})
    assert reports[0].logged == {}
    assert "has 300 characters, at most 255 are kept" in said[0]


class OnDevice:
    """A number on a GPU, which only reading it synchronizes."""

    is_cuda = True

    def __init__(self) -> None:
        self.reads = 0

    def detach(self) -> "OnDevice":
        return self

    def __float__(self) -> float:
        self.reads += 1
        return 1.0


def test_nothing_of_the_script_is_read_if_nobody_receives_it() -> None:
    number, pacer = OnDevice(), alone(0, 1)
    for _ in pacer.loader(range(4), 1):
        pacer.log(lr=number)
        pacer.step(number)
    assert number.reads == 0


def test_a_subscriber_receives_losses_and_logged_numbers_without_a_control_plane() -> None:
    pacer, seen = alone(0, 1), []
    pacer.subscribe(lambda iteration: seen.append((iteration.loss, iteration.logged)))
    for _ in pacer.loader(range(2), 1):
        pacer.log(lr=0.5)
        pacer.step(1.0)
    pacer.close()
    assert seen == [(1.0, {"lr": 0.5})] * 2

"""A script whose batches do not come by way of Paceline is told so, and why."""

import logging
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from paceline.adapters.loaders import is_for_training
from tests.paceline.ranks import alone, paced

NUMBERS = TensorDataset(torch.arange(8))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(8))


@pytest.fixture(autouse=True)
def _all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="paceline")


@pytest.mark.parametrize(
    ("loader", "reason"),
    [
        (DataLoader(NUMBERS, batch_size=2), "a DataLoader that does not shuffle: give shuffle=True"),
        (DataLoader(Stream(), batch_size=2), "an IterableDataset (the adapter cannot tell training from evaluation)"),
        ([1, 2], "a list, which is no DataLoader of torch"),
    ],
)
def test_training_by_a_loader_that_an_adapter_ignored_is_logged_once_with_the_reason(
    loader: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    pacer, _ = paced(0, 1, {})
    assert not is_for_training(loader, pacer)
    for _ in range(3):
        pacer.step(1.0)
    (said,) = caplog.messages
    assert "nothing is reported" in said
    assert reason in said


def test_a_script_without_a_paceline_loader_gets_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    pacer, _ = paced(0, 1, {})
    pacer.step(1.0)
    assert [message.endswith("pass the DataLoader to pacer.loader()") for message in caplog.messages] == [True]


def test_nothing_is_reported_of_loaders_for_evaluation_where_a_paced_one_trains(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pacer, _ = paced(0, 1, {})
    assert not is_for_training(DataLoader(NUMBERS, batch_size=2), pacer)
    for _ in pacer.loader(DataLoader(NUMBERS, batch_size=2, shuffle=True)):
        pacer.step(1.0)
    assert caplog.messages == []


def test_nothing_is_reported_without_a_control_plane(caplog: pytest.LogCaptureFixture) -> None:
    alone(0, 1).step(1.0)
    assert caplog.messages == []

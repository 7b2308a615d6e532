"""Ranks without a process group of all of them, such as torchft's replicas: shares stay equal, and no one waits."""

import logging

import pytest
import torch
from torch.utils.data import TensorDataset

from paceline.errors import CannotAttach
from tests.paceline.ranks import paced, run_ranks, shared

NUMBERS = TensorDataset(torch.arange(64))


def test_a_replica_that_returns_alone_trains_on_equal_shares_and_logs_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="paceline")
    pacer, _ = paced(1, 2, {0: shared(1, 12, 4)})
    seen = []
    for (batch,) in pacer.loader(NUMBERS, batch_size=8, seed=1):
        seen.append((len(batch), pacer.shares))
        pacer.step(1.0)
    assert seen == [(8, (8, 8))] * 4
    assert [message for message in caplog.messages if "torch.distributed is not initialised" in message]


def attached_to_a_smaller_group(rank: int, world: int) -> str:
    pacer, _ = paced(rank, world + 1, {})
    try:
        next(iter(pacer.loader(NUMBERS, batch_size=8, seed=1)))
    except CannotAttach as error:
        return str(error)
    return ""


def test_a_process_group_of_fewer_ranks_than_the_job_is_refused_before_the_first_batch() -> None:
    for said in run_ranks(attached_to_a_smaller_group, 2):
        assert said.startswith("the launcher has 3 ranks, torch.distributed 2: call paceline.attach() after")

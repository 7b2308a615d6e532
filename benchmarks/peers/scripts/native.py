"""The task as a workload of Paceline's own workers: ``benchmarks.peers.scripts.native:task``."""

import os
from typing import Final

import torch

from benchmarks.peers.machine import emulate, note
from benchmarks.peers.task import digits, network
from workers.workloads.data.examples import Dataset, Facts, Split, Table
from workers.workloads.network import Network
from workers.workloads.objectives import CROSS_ENTROPY, Objective

MACHINE: Final = "PEERS_MACHINE"
"""An environment variable of an agent, which its processes inherit."""


def right(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Whether each answer is right; the accuracy of an evaluation is logged."""
    found = outputs.argmax(1) == labels
    if not torch.is_grad_enabled():
        note(found.float().mean().item())
    return found


def task() -> Network:
    """The network and its data, on the machine that the environment names."""
    emulate(int(os.environ.get(MACHINE, "0")))
    objective = Objective(loss_sum=CROSS_ENTROPY.loss_sum, right=right)
    return Network(network, Dataset("digits", Facts(shape=(1, 8, 8), classes=10), _read), objective)


def _read() -> Split:
    train, held = (Table(features=part.tensors[0], targets=part.tensors[1]) for part in digits())
    return Split(train=train, held=held, writers=None)

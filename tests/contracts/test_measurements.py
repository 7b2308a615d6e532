"""Every optional measurement of a worker is reported by native workers and by attached ranks, or is known not to be."""

import math
from collections.abc import Iterable
from typing import Any, Final
from unittest.mock import patch

import pytest
import torch
from msgspec import UNSET
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from controlplane.protocol.measurements import OF_WORKERS, known_of
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.noise import EVERY, LEAST
from paceline.load import Load
from tests.paceline.ranks import paced, run_ranks
from tests.workers.driver import job_spec
from tests.workers.reducing import ReducingCluster
from tests.workers.test_accelerator import Library, gpu

OPTIONAL: Final = {each.name for each in OF_WORKERS if each.is_optional}
ITERATIONS: Final = EVERY * LEAST + 10
"""Until each rank has a noise scale."""

NOT_OF_WORKERS: Final = {"outside_s": "a worker does nothing between two iterations"}
_OF_NVML = "NVML comes with the agent's libraries, and a training script gets paceline's three alone"
NOT_OF_RANKS: Final = {
    "gpu_utilization": _OF_NVML,
    "gpu_temperature": _OF_NVML,
    "gpu_power": _OF_NVML,
    "gpu_memory": "its part of the total is reported as memory",
}
OF_SOME_MACHINES: Final = {"joules"}
"""A counter of energy may be there, and readable, or not (``tests/paceline/test_energy.py``)."""


def told(reports: Iterable[IterationReport]) -> set[str]:
    """The optional measurements that any of these has."""
    return {name for report in reports for name in known_of(report, OPTIONAL)}


@patch("paceline.budget.PART", math.inf)
def told_by_a_rank(rank: int, world: int) -> set[str]:
    """Of a module so small that its norms would be measured seldom."""
    pacer, script = paced(rank, world, {})
    module = pacer.watch(DistributedDataParallel(nn.Linear(4, 1)))
    inputs = torch.randn(4 * world * ITERATIONS, 4, generator=torch.Generator().manual_seed(3))
    for (x,) in pacer.loader(torch.utils.data.TensorDataset(inputs), 4):
        loss = (module(x) - 1.0).square().mean()
        loss.backward()
        module.zero_grad()
        pacer.step(loss)
    pacer.close()
    return told(script.all_said(IterationReport))


def test_native_workers_report_every_optional_measurement_but_those_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a GPU, without servers."""
    monkeypatch.setattr("workers.trainer.loop.gauge_of", lambda device: gpu(Library()))
    spec = job_spec(workers=2, servers=0, communication="all-reduce")
    with ReducingCluster(spec, [[30, 18]] * ITERATIONS) as cluster:
        cluster.run()
        found = [told(cluster.reports(rank)) for rank in range(2)]
    assert found == [OPTIONAL - NOT_OF_WORKERS.keys()] * 2
    assert NOT_OF_WORKERS.keys() <= OPTIONAL


def test_attached_ranks_report_every_optional_measurement_but_those_with_a_reason() -> None:
    found = [known - OF_SOME_MACHINES for known in run_ranks(told_by_a_rank, 2)]
    assert found == [OPTIONAL - OF_SOME_MACHINES - NOT_OF_RANKS.keys()] * 2
    assert NOT_OF_RANKS.keys() <= OPTIONAL


def test_what_a_rank_measures_of_its_machine_is_reported_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, float] = {"cpu": 0.5, "memory": 0.25, "gpu_power": 300.0, "gpu_temperature": float("nan")}
    monkeypatch.setattr(Load, "numbers", lambda load: found)
    pacer, script = paced(0, 1, {})
    for (_,) in pacer.loader(torch.utils.data.TensorDataset(torch.ones(8)), 4):
        pacer.step(torch.tensor(1.0))
    pacer.close()
    reports: list[Any] = script.all_said(IterationReport)
    assert len(reports) == 2
    for report in reports:
        assert (report.cpu, report.memory, report.gpu_power, report.gpu_temperature) == (0.5, 0.25, 300.0, UNSET)

"""Why a rank is slow: its computing, its loading of data, or its link. Each shows in its own part of the iteration."""

import socket
import sys
import time
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

from controlplane.protocol.messages import IterationReport
from paceline.load import Load
from paceline.reporting import Reporter, Times, transfer_s
from paceline.wire import Wire, borrowed
from tests.paceline.ranks import paced, run_ranks
from tests.paceline.test_gradients import Direct, Wrap, sharded_layers

SO_MAX_PACING_RATE = 47
SLOW_S = 0.1
WIDTH = 300
"""Of a model of 360 KB."""

SLOW_LINK = 2_500_000
"""Bytes per second: much slower than a link whose receiver acknowledges 40 ms late in both halves of a sum."""


class Samples(Dataset[torch.Tensor]):
    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self._delay_s)
        return torch.ones(WIDTH)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def pause(seconds: float) -> None:
    time.sleep(seconds)


class Slowed(nn.Module):
    def __init__(self, delay_s: float) -> None:
        super().__init__()
        self.linear, self._delay_s = nn.Linear(WIDTH, WIDTH), delay_s

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pause(self._delay_s * len(x))
        return self.linear(x)


AWAITED, LATER = range(1, 9), range(20, 40)
"""Iterations whose exchange of measurements is awaited, and ones that it overlaps with."""


def measured(
    rank: int, world: int, cause: str, counted: range, wrap: Wrap = DistributedDataParallel
) -> dict[str, float]:
    """Medians of the parts of a rank's iterations; rank 1 is slowed by the cause."""
    is_slow = rank == 1
    pacer, script = paced(rank, world, {})
    model = pacer.watch(wrap(Slowed(SLOW_S / 4 if is_slow and cause == "compute" else 0.0)))
    loader = pacer.loader(Samples(SLOW_S / 4 if is_slow and cause == "data" else 0.0), 4, seed=1)
    if is_slow and cause == "link":
        wire = Wire()
        wire.look()
        for descriptor in wire.descriptors:
            with borrowed(descriptor) as sock:
                sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, SLOW_LINK)
    for x in loader:
        model(x).sum().backward()
        pacer.step()
        if pacer.iteration == counted.stop:
            break
    pacer.close()
    reports = [report for report in script.all_said(IterationReport) if report.iteration in counted]
    lengths = [report.iteration_s for report in reports]
    assert len(reports) == len(counted)
    return {
        "data": median(report.data_s for report in reports),
        "compute": median(report.compute_s for report in reports),
        "link": median(report.push_s + report.pull_s for report in reports),
        "waiting": median(report.waiting_s for report in reports),
        "outside": median(report.outside_s for report in reports),
        "iteration": median(lengths),
    }


def check(ranks: list[dict[str, float]], cause: str) -> None:
    """Rank 1 is slow for this cause, and the others wait for it."""
    slow, others = ranks[1], [ranks[0], ranks[2]]
    lead = {part: slow[part] - max(other[part] for other in others) for part in ("data", "compute", "link")}
    assert max(lead, key=lambda part: lead[part]) == cause, ranks
    assert lead[cause] > 0.4 * slow["iteration"], ranks
    assert all(other["waiting"] > slow["waiting"] for other in others), ranks


@pytest.mark.parametrize("counted", [AWAITED, LATER], ids=["first", "later"])
@pytest.mark.parametrize("cause", ["compute", "data", "link"])
def test_the_slow_rank_is_reported_with_its_cause(cause: str, counted: range) -> None:
    ranks = run_ranks(measured, 3, cause, counted)
    check(ranks, cause)
    assert all(rank["outside"] < 0.1 * rank["iteration"] for rank in ranks), ranks


@pytest.mark.parametrize(
    "wrap",
    [
        Direct,
        lambda module: torch.compile(DistributedDataParallel(module), backend="eager"),
        lambda module: DistributedDataParallel(module, static_graph=True),
        sharded_layers,
    ],
    ids=["forward by name", "compiled", "static graph", "FSDP2"],
)
def test_others_wait_for_a_rank_that_computes_slowly_however_it_is_wrapped(wrap: Wrap) -> None:
    check(run_ranks(measured, 3, "compute", LATER, wrap), "compute")


TOLD = st.dictionaries(st.integers(0, 7), st.builds(Times, *[st.floats(0, 5)] * 3), min_size=1)


@given(TOLD)
def test_nobodys_transfer_is_longer_than_the_shortest_sum_and_exchange(told: dict[int, Times]) -> None:
    shortest = min(times.sum_s + times.exchange_s for times in told.values())
    assert all(0.0 <= transfer_s(rank, told) <= shortest + 1e-9 for rank in told)
    least = min(times.sum_s for times in told.values()) + min(times.exchange_s for times in told.values())
    assert max(transfer_s(rank, told) for rank in told) >= least - 1e-9


def test_links_of_like_speed_leave_the_shortest_sum_to_all() -> None:
    told = {0: Times(0.5, 0.0, 0.11), 1: Times(0.2, 0.0, 0.1), 2: Times(0.3, 0.0, 0.12)}
    assert [transfer_s(rank, told) for rank in told] == [0.2, 0.2, 0.2]


def test_ranks_that_wait_for_each_others_compute_and_optimizer_both_wait() -> None:
    told = {0: Times(0.01, 0.3, 0.0), 1: Times(0.2, 0.02, 0.0)}
    assert [transfer_s(rank, told) for rank in told] == pytest.approx([0.03, 0.03])


def test_what_a_slow_link_has_left_to_send_behind_a_sum_is_its_time() -> None:
    told = {0: Times(0.06, 0.02, 0.02), 1: Times(0.04, 0.04, 0.08), 2: Times(0.04, 0.04, 0.004)}
    assert [transfer_s(rank, told) for rank in told] == pytest.approx([0.02, 0.08, 0.004])


def test_the_load_of_a_machine_that_does_not_tell_is_zero(tmp_path: Any) -> None:
    assert Load(tmp_path).numbers() == {"cpu": 0.0, "memory": 0.0}
    found = Load().numbers()
    assert 0.0 <= found["cpu"] <= 1.0
    assert 0.0 < found["memory"] < 1.0


def test_memory_is_that_of_the_device_that_the_script_computes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {None: 8, "cuda:1": 2}
    cuda = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, mem_get_info=lambda device: (free[device], 8)
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    reporter = Reporter(1, 4, None)
    reporter.computes_on("cuda:1")
    assert reporter._load.numbers()["memory"] == 0.75
    assert Load().numbers()["memory"] == 0.0

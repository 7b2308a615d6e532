"""What scripts have beside plain steps keeps working: mixed precision, loss scaling, batch norm, CUDA's clock."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from controlplane.protocol.messages import IterationReport
from paceline.marks import CpuClock, CudaClock, Measured, Part, durations
from tests.architecture.sources import ROOT
from tests.paceline.ranks import alone, paced, run_ranks, shared
from tests.paceline.test_loops import ahead_by
from tests.support.gpus import needs_gpu


class Labelled(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 203

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        made = torch.Generator().manual_seed(index)
        return torch.randn(6, generator=made) + index % 3, index % 3


def mixed(rank: int, world: int) -> Any:
    """bf16 autocast, a GradScaler, batch norm and clipping, under uneven shares."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    pacer, _ = paced(rank, world, {1: shared(1, 24, 8)})
    ddp = pacer.watch(DistributedDataParallel(model))
    loader, optimizer = pacer.loader(Labelled(), 16, seed=1), torch.optim.AdamW(ddp.parameters(), lr=0.02)
    scaler, losses = torch.amp.GradScaler("cpu", init_scale=1024.0), []
    for _ in range(3):
        for x, y in loader:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(ddp(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(loss.item())
            pacer.step(loss)
    return losses, [float(p.detach().double().sum()) for p in ddp.parameters()], pacer.shares


def test_mixed_precision_loss_scaling_and_batch_norm_train_equally_on_uneven_ranks() -> None:
    (losses, first, shares), (_, second, _) = run_ranks(mixed, 2)
    assert shares == (24, 8)
    assert first == second
    assert sum(losses[-4:]) < 0.7 * sum(losses[:4])


def test_marks_become_the_parts_that_they_end() -> None:
    measured = Measured(3, 8, 0, [(Part.OUTSIDE, 10.0)], blocked_s=0.5)
    for part, at in (
        (Part.OUTSIDE, 11.0),
        (Part.DATA, 13.0),
        (Part.COMPUTE, 17.0),
        (Part.SUM, 20.0),
    ):
        measured.add(part, at)
    measured.add(Part.COMPUTE, 21.0)
    found = durations(CpuClock(), measured)
    assert found is not None
    assert (found.outside, found.data, found.compute, found.sum) == (1.0, 2.0, 4.5, 3.5)


class Stepping(CpuClock):
    """A clock that a test sets."""

    now_s = 0.0

    def stamp(self) -> float:
        return self.now_s


def test_what_a_script_does_between_two_iterations_is_no_part_of_either() -> None:
    pacer, script = paced(0, 1, {})
    clock = pacer._clock = Stepping()
    for _ in pacer.loader(range(6), 2, seed=1):
        clock.now_s += 0.25
        pacer.step(1.0)
        clock.now_s += 30.0  # an evaluation
    pacer.close()
    reports = script.all_said(IterationReport)
    assert [report.iteration_s for report in reports] == [0.25, 0.25, 0.25]
    assert [report.outside_s for report in reports] == [0.0, 30.0, 30.0]
    assert all(report.coordination_s == 0.0 for report in reports)


def test_an_evaluation_is_no_data_loading_where_batches_are_taken_ahead() -> None:
    pacer, script = paced(0, 1, {})
    clock = pacer._clock = Stepping()
    model = pacer.watch(nn.Linear(1, 1))
    for x in ahead_by(1, pacer.loader(torch.ones(8, 1), 2, seed=1)):
        model(x).sum().backward()
        clock.now_s += 0.25
        pacer.step(1.0)
        clock.now_s += 30.0
    pacer.close()
    reports = script.all_said(IterationReport)
    assert [(report.data_s, report.iteration_s) for report in reports] == [(0.0, 0.25)] * 4
    assert [report.outside_s for report in reports] == [0.0, 30.0, 30.0, 30.0]


class Events(CpuClock):
    """Marks that have happened, or have not yet."""

    def happened(self, stamp: Any) -> bool:
        return bool(stamp < 100.0)


def test_an_iteration_whose_last_mark_has_not_happened_is_not_timed_yet() -> None:
    measured = Measured(0, 1, 0, [(Part.OUTSIDE, 1.0), (Part.COMPUTE, 200.0)])
    assert durations(Events(), measured) is None


class Stream:
    """Of one device, as ``torch.cuda.current_stream`` gives it."""

    def __init__(self, device: Any) -> None:
        self.device = device


class Event:
    """As ``torch.cuda.Event``: remembers where it was put."""

    def __init__(self, **options: Any) -> None:
        self.device: Any = None

    def record(self, stream: Stream) -> None:
        self.device = stream.device


def test_marks_are_put_where_the_module_is_and_not_on_the_current_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    assert CudaClock(torch.device("cuda", 3)).stamp().device == torch.device("cuda", 3)


@needs_gpu
def test_step_waits_for_no_gpu_where_only_a_subscriber_reads_the_loss() -> None:
    pacer, losses = alone(0, 1), []
    model = pacer.watch(nn.Linear(1, 1).cuda())
    pacer.subscribe(lambda iteration: losses.append(iteration.loss))
    held = torch.cuda.Event()
    for (x,) in pacer.loader(torch.utils.data.TensorDataset(torch.ones(2, 1)), batch_size=1):
        loss = model(x.cuda()).sum() * 0 + 2
        if not pacer.iteration:
            torch.cuda._sleep(500_000_000)
            held.record()
        pacer.step(loss)
        assert pacer.iteration > 1 or not held.query()
    torch.cuda.synchronize()
    pacer.close()
    assert losses == [2.0, 2.0]


@needs_gpu
def test_on_a_gpu_marks_are_events_that_no_one_waits_for() -> None:
    clock = CudaClock()
    begin = clock.stamp()
    torch.cuda._sleep(50_000_000)
    loss = clock.number(torch.ones((), device="cuda") * 2)
    end = clock.stamp()
    assert not clock.happened(end)
    torch.cuda.synchronize()
    assert clock.seconds(begin, end) > 0.0
    assert loss() == 2.0


def test_attaching_loads_neither_torch_nor_an_http_client_and_is_quick() -> None:
    program = (
        "import sys, time; begun = time.process_time(); import paceline; pacer = paceline.attach();"
        "print(time.process_time() - begun, {'torch', 'httpx', 'numpy', 'django'} & set(sys.modules))"
    )
    lengths = []
    for _ in range(3):
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
        length, _, loaded = found.stdout.partition(" ")
        assert loaded.strip() == "set()"
        assert "PACELINE_URL is not set" in found.stderr
        lengths.append(float(length))
    assert min(lengths) < 0.3


def test_one_process_without_a_control_plane_trains_as_it_would() -> None:
    pacer = alone(0, 1)
    model = nn.Linear(6, 3)
    assert pacer.watch(model) is model
    assert not model._forward_hooks
    for x, y in pacer.loader(Labelled(), 16, seed=1):
        nn.functional.cross_entropy(model(x), y).backward()
        pacer.log(lr=0.1)
        pacer.step()
    assert (pacer.iteration, pacer.epoch, pacer.active) == (13, 1, False)
    assert pacer.last is not None
    assert pacer.last.number == 12

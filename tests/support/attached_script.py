"""A rank of an ordinary DDP script, paced: what `paceline run` would have torchrun start. Its options come as JSON.

It ends by itself when its time is up, and writes a line of JSON for each iteration to a file of its own.
"""

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import paceline

STOPPED = 3
ALIKE = {"samples": 4096, "batch_size": 32}
"""Options that are one number for all ranks, or a list by rank."""


class Slowed(nn.Module):
    """A model on a machine of so many samples per second."""

    def __init__(self, speed: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 1))
        self.speed = speed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.speed:
            time.sleep(len(x) / self.speed)
        return self.layers(x)


def main() -> int:
    """Train as the environment says; the exit status."""
    status = train(json.loads(os.environ["SCRIPT"]))
    dist.destroy_process_group()
    return status


def train(options: dict[str, Any]) -> int:
    """The exit status."""
    signal.alarm(options.get("deadline_s", 90))
    torch.set_num_threads(1)
    torch.manual_seed(5)
    dist.init_process_group("gloo", timeout=timedelta(seconds=options.get("timeout_s", 60)))
    rank, folder = dist.get_rank(), Path(options["folder"])
    speeds = options.get("speeds") or [0.0] * dist.get_world_size()
    samples, batch_size = (_of_rank(options.get(name, usual), rank) for name, usual in ALIKE.items())
    data = TensorDataset(torch.randn(samples, 8), torch.arange(float(samples)))

    pacer = paceline.attach()
    model = pacer.watch(DistributedDataParallel(Slowed(speeds[rank])))
    loader = pacer.loader(data, batch_size=batch_size, seed=7)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    if options.get("scales_lr"):
        pacer.scale_lr(optimizer)
    saved = folder / "state.pt"
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        loader.load_state_dict(state["loader"])
    lines = (folder / f"rank-{rank}.jsonl").open("a", buffering=1)
    life, begun_s = os.getpid(), time.perf_counter()
    try:
        while pacer.iteration < options["iterations"]:
            for x, y in loader:
                nn.functional.mse_loss(model(x).squeeze(1), y / 1e4).backward()
                optimizer.step()
                optimizer.zero_grad()
                k, size, shares = pacer.iteration, pacer._draw.size if pacer._draw else len(y), pacer.shares
                now_s, before_s = time.perf_counter(), begun_s
                begun_s = now_s
                line = {"k": k, "s": now_s - before_s, "shares": shares, "life": life, "lr": pacer.lr_scale}
                line["samples"] = y[:size].tolist()
                lines.write(json.dumps(line) + "\n")
                _fault(options, rank, k, saved)
                pacer.log(lr=0.001)
                pacer.step(0.5)
                if options.get("saves") and rank == 0:
                    _save(saved, model, loader)
                if pacer.iteration >= options["iterations"]:
                    break
    except paceline.Stopped as stopped:
        if stopped.will_restart and rank == 0:
            _save(saved, model, loader)
        lines.write(json.dumps({"stopped": str(stopped), "k": pacer.iteration}) + "\n")
        return STOPPED
    total = sum(p.sum().item() for p in model.parameters())
    lines.write(json.dumps({"done": pacer.iteration, "sum": total}) + "\n")
    return 0


def _of_rank(option: int | list[int], rank: int) -> int:
    return option[rank] if isinstance(option, list) else option


def _save(file: Path, model: nn.Module, loader: Any) -> None:
    torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, file.with_suffix(".new"))
    file.with_suffix(".new").replace(file)


def _fault(options: dict[str, Any], rank: int, iteration: int, saved: Path) -> None:
    """What goes wrong there, on the first life."""
    fault = options.get("faults", {}).get(str(rank), {})
    if fault.get("at") != iteration or (saved.parent / "was-faulty").exists():
        return
    (saved.parent / "was-faulty").touch()
    if fault["kind"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault["kind"] == "hang":
        time.sleep(fault["s"])
    elif fault["kind"] == "memory":
        raise torch.OutOfMemoryError("no memory left on the device")


if __name__ == "__main__":
    sys.exit(main())

"""One rank of the job of `bench attached`: DistributedDataParallel with and without Paceline, in alternating blocks."""

import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

if TYPE_CHECKING:
    import paceline

DEADLINE_S = 400
WIDTH = 256


class Machine(nn.Module):
    """A network on a machine with a given speed in samples per second, plus a constant time per batch."""

    def __init__(self, speed: float, constant_s: float, layers: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(layers)))
        self._speed, self._constant_s = speed, constant_s

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The emulated time includes the real computation."""
        begun_s = time.perf_counter()
        found: torch.Tensor = self.layers(x)
        if self._speed:
            time.sleep(max(0.0, self._constant_s + len(x) / self._speed - (time.perf_counter() - begun_s)))
        return found


class Loop:
    """A training loop that is run in blocks of iterations; their lengths in seconds."""

    def __init__(self, model: nn.Module, loader: Any, pacer: "paceline.Pacer | None") -> None:
        self._model, self._pacer, self._loader = model, pacer, loader
        self._optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self._batches = self._forever()

    def run(self, iterations: int) -> list[float]:
        """Run more iterations."""
        lengths, before_s = [], time.perf_counter()
        for _ in range(iterations):
            (x,) = next(self._batches)
            loss = self._model(x).square().mean()
            loss.backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
            if self._pacer is not None:
                self._pacer.step(loss)
            now_s = time.perf_counter()
            lengths.append(now_s - before_s)
            before_s = now_s
        return lengths

    def _forever(self) -> Any:
        while True:
            yield from self._loader


def main(options: dict[str, Any]) -> dict[str, Any]:
    """The lengths of each block's iterations, plain and paced."""
    signal.alarm(DEADLINE_S)
    torch.set_num_threads(1)
    torch.manual_seed(3)
    dist.init_process_group("gloo")
    rank, batch = dist.get_rank(), options["batch_size"]
    speed = options["speeds"][rank]
    data = TensorDataset(torch.randn(max(8192, 64 * batch), WIDTH))

    def model() -> DistributedDataParallel:
        return DistributedDataParallel(Machine(speed, options.get("constant_s", 0.0), options["layers"]))

    plain = Loop(model(), DataLoader(data, batch, sampler=DistributedSampler(data)), None)
    if options.get("only") == "plain":
        return {"plain": [plain.run(options["iterations"])], "resident": resident()}
    import paceline  # imported here, so that the memory of a plain rank does not include Paceline

    pacer = paceline.attach()
    paced = Loop(pacer.watch(model()), pacer.loader(data, batch, seed=7), pacer)
    loops = {"plain": plain, "paced": paced}
    if options.get("only") == "paced":
        del loops["plain"]
    blocks: dict[str, Any] = {"plain": [], "paced": [], "cpu": [], "shares": []}
    for _ in range(options["pairs"]):
        for name, loop in loops.items():
            dist.barrier()
            cpu_s = time.process_time()
            blocks[name].append(loop.run(options["iterations"]))
            blocks["cpu"].append((name, (time.process_time() - cpu_s) / options["iterations"]))
            blocks["shares"].append(pacer.shares)
    blocks["resident"] = resident()
    pacer.close()
    return blocks


def resident() -> int:
    """Bytes of this process that are in memory."""
    found: int = psutil.Process().memory_info().rss
    return found


if __name__ == "__main__":
    result = main(json.loads(os.environ["BENCH"]))
    if dist.get_rank() == 0:
        sys.stdout.write(json.dumps(result) + "\n")
    dist.destroy_process_group()

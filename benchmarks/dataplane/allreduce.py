"""Training steps without servers, ours against plain DistributedDataParallel, in one run.

    manage.py bench allreduce [--rounds 8] [--ranks 2] [--json]

The same processes on loopback train the same network on the same batches over gloo, in turns: *DDP* as its
documentation has it, with equal batches, which is all that it can average; *ours* with the very parts of a worker of
an all-reduce job: sums of gradients, begun while the rest is computed, and of counts, the mean's step at every member,
parameters handed out.
The figure is the median of the rounds' ratios of time, for a network whose steps are mostly work and for one whose
steps are mostly transfer. Target: 0.95. Afterwards the parameters of both must agree.
"""

import argparse
import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from statistics import median
from threading import Event
from typing import Any, Final

from benchmarks.dataplane.processes import spawning

BAR: Final = 0.95
HOST: Final = "127.0.0.1"
STEPS: Final = 12
BATCH: Final = 64
LR: Final = 0.01
NETWORKS: Final[dict[str, dict[str, Any]]] = {
    "cifarnet": {"name": "cifarnet", "dataset": "cifar-like"},
    "wide mlp": {"name": "mlp", "dataset": "mnist-like", "options": {"hidden": [1024, 1024]}},
}


class Link:
    """A worker's link to a control plane that never answers."""

    def __init__(self) -> None:
        self.stopping = Event()

    def orders(self) -> None:
        """There are none."""


def work(rank: int, ranks: int, port: int, network: dict[str, Any], control: Connection) -> None:
    """One rank: does a round at each command, and reports how long it took."""
    import numpy as np
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    from controlplane.protocol.orders import PeerAddress, Placement
    from controlplane.protocol.spec import JobSpec, Optimizer, Stop, Workload
    from workers.trainer.parameters import LocalParameters
    from workers.trainer.reduction import Reduction
    from workers.transport.frames import Header, Op
    from workers.workloads.catalogue import load_workload
    from workers.workloads.network import Network
    from workers.workloads.tensors import sums_of, values_of

    torch.set_num_threads(1)
    spec = JobSpec(
        name="bench",
        workload=Workload(**network),
        workers=ranks,
        servers=0,
        communication="all-reduce",
        batch_size=BATCH,
        optimizer=Optimizer(lr=LR),
        stop=Stop(iterations=1),
    )
    workload = load_workload(spec.workload)
    assert isinstance(workload, Network)
    data, replica = workload.dataset.split.train, workload.replica()
    everything = np.random.default_rng([7, rank]).integers(workload.sample_count, size=(STEPS, BATCH))
    held, sizes = LocalParameters(workload, spec), workload.layout.sizes
    reduction = Reduction(rank, Link(), held, spec, sizes=sizes, host=HOST)  # type: ignore[arg-type]
    values, sums = values_of(replica), sums_of(replica)
    os.environ.update(MASTER_ADDR=HOST, MASTER_PORT=str(port))
    replica.report_progress(reduction.offer)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    module = workload.build()
    vector_to_parameters(torch.from_numpy(workload.init(spec.seed)), module.parameters())
    wrapped = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=LR)
    control.send(reduction.address)
    peers = [PeerAddress(rank=at, host=host, port=at_port) for at, (host, at_port) in enumerate(control.recv())]
    reduction.adopt(Placement(incarnation=0, version=1, generation=1, blocks=[], servers=[], peers=peers))
    iteration = 0
    while (kind := control.recv()) != "end":
        if kind == "compare":
            reduction.pull(values, Header(op=Op.PULL, generation=1, iteration=iteration))
            theirs = parameters_to_vector(module.parameters()).detach().numpy()
            control.send(float(np.abs(theirs - replica.parameters).max()))
            continue
        dist.barrier()
        began = time.monotonic()
        for samples in everything:
            if kind == "ours":
                stamp = Header(op=Op.PUSH, generation=1, iteration=iteration, samples=BATCH)
                reduction.pull(values, stamp)
                reduction.begin(iteration, sums, len(samples))
                replica.update(samples)
                reduction.push(sums, reduction.blocks, stamp)
                iteration += 1
            else:
                inputs, targets = data.take(samples, torch.device("cpu"))
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(wrapped(inputs), targets).backward()
                optimizer.step()
        control.send(time.monotonic() - began)
    dist.destroy_process_group()


def measure(network: str, *, ranks: int, rounds: int) -> dict[str, Any]:
    """Both in turns on one network; which begins changes with every round."""
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    with spawning() as start:
        controls = [start(work, rank, ranks, port, NETWORKS[network]) for rank in range(ranks)]
        addresses = [control.recv() for control in controls]
        for control in controls:
            control.send(addresses)
        took: dict[str, list[float]] = {"ddp": [], "ours": []}
        for number in range(rounds + 1):
            for kind in sorted(took, reverse=bool(number % 2)):
                seconds = max(_ask_all(controls, kind))
                if number:  # the first round connects and touches memory
                    took[kind].append(seconds)
        apart = max(_ask_all(controls, "compare"))
    ratios = [round(ddp / ours, 3) for ddp, ours in zip(took["ddp"], took["ours"], strict=True)]
    return {
        "network": network,
        "ddp_ms": round(median(took["ddp"]) / STEPS * 1000, 2),
        "ours_ms": round(median(took["ours"]) / STEPS * 1000, 2),
        "ratio": median(ratios),
        "ratios": ratios,
        "largest_difference": apart,
        "reached": median(ratios) >= BAR and apart < 1e-4,
    }


def _ask_all(controls: Sequence[Connection], kind: str) -> list[float]:
    for control in controls:
        control.send(kind)
    return [float(control.recv()) for control in controls]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each network; 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    found = [measure(network, ranks=given.ranks, rounds=given.rounds) for network in NETWORKS]
    if given.json:
        sys.stdout.write(json.dumps({"networks": found, "bar": BAR}) + "\n")
    for row in () if given.json else found:
        verdict = "reached" if row["reached"] else "missed"
        times = f"DDP {row['ddp_ms']} ms a step, ours {row['ours_ms']} ms, ratio {row['ratio']:.2f} (target {BAR})"
        sys.stdout.write(f"{row['network']}: {times}; parameters {row['largest_difference']:.0e} apart: {verdict}\n")
    return 0 if all(row["reached"] for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())

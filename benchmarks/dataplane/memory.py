"""Peak memory of a worker beyond the framework, as a multiple of its model: ``manage.py bench memory``.

A plain module of 124 million parameters (the sizes of GPT-2 small, without attention) takes a few steps on single
samples, in separate processes: with servers and by all-reduce, with and without evaluation and the final model.
"""

import argparse
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.dataplane.processes import spawning

HOST = "127.0.0.1"
BAR = 4.0
ITERATIONS = 3
WIDTH, WORDS, LAYERS, LENGTH = 768, 50_257, 12, 8
KEY = b"memory"


@dataclass(frozen=True)
class Case:
    """One worker with measured memory."""

    name: str
    communication: str
    optimizer: str
    evaluates: bool
    bar: float = BAR
    """Above ``BAR`` where optimizer state or an evaluator's copy leaves no choice."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Of the model, where it is not the usual one: see ``large``."""


CASES = (
    Case("servers", "servers", "adam", evaluates=False),
    Case("servers, evaluates and saves", "servers", "adam", evaluates=True),
    Case("all-reduce, SGD", "all-reduce", "sgd", evaluates=False),
    Case("all-reduce, SGD, evaluates and saves", "all-reduce", "sgd", evaluates=True, bar=4.8),
    Case("all-reduce, Adam", "all-reduce", "adam", evaluates=False, bar=5.8),
    Case("all-reduce, Adam, evaluates and saves", "all-reduce", "adam", evaluates=True, bar=6.7),
)


def large(*, layers: int = LAYERS, width: int = WIDTH, words: int = WORDS) -> Any:
    """The workload: next words of random texts, by layers of a transformer's sizes."""
    import numpy as np
    import torch
    from torch import nn

    from workers.workloads.data.examples import Dataset, Facts, Split, Table
    from workers.workloads.network import Network
    from workers.workloads.objectives import CROSS_ENTROPY

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(words, width)
            self.layers = nn.ModuleList(
                nn.Sequential(
                    nn.LayerNorm(width),
                    nn.Linear(width, 3 * width),
                    nn.Linear(3 * width, width),
                    nn.GELU(),
                    nn.Linear(width, 4 * width),
                    nn.Linear(4 * width, width // 2),
                    nn.Linear(width // 2, width),
                )
                for _ in range(layers)
            )
            self.head = nn.Linear(width, words, bias=False)
            self.head.weight = self.words.weight

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            hidden = self.words(inputs.long())
            for layer in self.layers:
                hidden = hidden + layer(hidden)
            return self.head(hidden[:, -1])  # type: ignore[no-any-return]

    def read() -> Split:
        rng = np.random.default_rng(1)
        texts = torch.from_numpy(rng.integers(words, size=(64, LENGTH)).astype(np.float32))
        part = Table(features=texts, targets=torch.from_numpy(rng.integers(words, size=64)))
        return Split(train=part, held=Table(features=texts[:2], targets=part.targets[:2]), writers=None)

    return Network(Model, Dataset("texts", Facts(shape=(LENGTH,), classes=words), read), CROSS_ENTROPY)


def resident(field: str = "VmHWM") -> int:
    """Bytes of this process in memory: now (``VmRSS``), or at most since ``forget``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def forget() -> None:
    """Reset the measured peak."""
    Path("/proc/self/clear_refs").write_text("5")


class Link:
    """Replaces the control plane: stores sent messages, and delivers given ones."""

    in_reach = True

    def __init__(self, on_say: Callable[[Any], None] = lambda message: None) -> None:
        self.stopping = threading.Event()
        self._changed = threading.Condition(threading.RLock())
        self._on_say, self._sent = on_say, 0
        self._orders: Any = None
        self._placement: Any = None

    def say(self, build: Callable[[int], Any]) -> None:
        """Sent at once."""
        with self._changed:
            self._sent += 1
            message = build(self._sent)
        self._on_say(message)

    def give(self, *, orders: Any = None, placement: Any = None) -> None:
        """Deliver orders and a placement of the control plane."""
        with self._changed:
            self._orders, self._placement = orders or self._orders, placement or self._placement
            self._changed.notify_all()

    def orders(self) -> Any:
        """The newest."""
        return self._orders

    def placement(self) -> Any:
        """The newest."""
        return self._placement

    def await_orders(self, accept: Callable[[Any], bool], timeout_s: float | None = None) -> Any:
        """The newest, once they are accepted."""
        return self._await(lambda: self._orders, accept, timeout_s)

    def await_placement(self, version: int, timeout_s: float | None = None) -> Any:
        """The one of that version."""
        return self._await(lambda: self._placement, lambda placement: placement.version >= version, timeout_s)

    def _await(self, newest: Callable[[], Any], accept: Callable[[Any], bool], timeout_s: float | None) -> Any:
        def ready() -> bool:
            found = newest()
            return self.stopping.is_set() or (found is not None and accept(found))

        with self._changed:
            return newest() if self._changed.wait_for(ready, timeout_s) and not self.stopping.is_set() else None


def process_order(case: Case, role: Any, index: int, workers: int) -> Any:
    """The message that an agent would receive."""
    from controlplane.protocol import keys
    from controlplane.protocol.orders import ProcessOrder
    from controlplane.protocol.spec import Evaluate, JobSpec, Optimizer, Stop, Workload

    reduces = case.communication == "all-reduce"
    spec = JobSpec(
        name="memory",
        workload=Workload(name="benchmarks.dataplane.memory:large", options=dict(case.sizes)),
        workers=workers,
        servers=0 if reduces else 1,
        communication="all-reduce" if reduces else "servers",
        batch_size=1,
        optimizer=Optimizer(name=case.optimizer, lr=1e-4),
        evaluate=Evaluate(every=1),
        stop=Stop(iterations=ITERATIONS),
    )
    key = keys.process_key(KEY, role, index, f"{role}{index}").hex()
    return ProcessOrder(
        job=1, role=role, index=index, instance=f"{role}{index}", slot=index, key=key, spec=spec, emulate=None
    )


def be_server(case: Case, control: Connection) -> None:
    """Hold the parameters until ended."""
    from controlplane.core.placing import cut_blocks
    from controlplane.protocol.messages import ServerHello
    from controlplane.protocol.orders import Block, Member, ServerOrders
    from workers.server.main import serve
    from workers.workloads.local import Local

    class Taking(Link):
        blocks: Sequence[Block] = ()
        port = 0

        def on_orders(self, take: Callable[[Any], None]) -> None:
            members = [Member(rank=0, instance="worker0", from_iteration=0)]
            blocks = list(self.blocks)
            take(
                ServerOrders(
                    incarnation=0, generation=1, sequence=1, members=members, placement_version=1, blocks=blocks
                )
            )
            control.send((blocks, self.port))

    def on_say(message: Any) -> None:
        if isinstance(message, ServerHello):
            cuts = enumerate(cut_blocks(message.tensor_sizes))
            link.blocks = [Block(index=at, start=start, stop=stop, server=0) for at, (start, stop) in cuts]
            link.port = message.port

    link = Taking(on_say)
    serve(process_order(case, "server", 0, 1), link, host=HOST, local=Local(allow_code=True))


def be_worker(case: Case, rank: int, workers: int, control: Connection) -> None:
    """Train, and report the additional memory."""
    import torch

    from controlplane.protocol import keys
    from controlplane.protocol.messages import IterationReport, WorkerHello
    from controlplane.protocol.orders import Orders, PeerAddress, Placement, ServerAddress
    from workers.spawner import warmth
    from workers.trainer.loop import train
    from workers.upload import write_npz
    from workers.workloads.local import Local

    assert warmth.BROUGHT
    torch.set_num_threads(1)

    def grant(iteration: int) -> None:
        link.give(
            orders=Orders(
                incarnation=0,
                generation=1,
                sequence=iteration + 1,
                share=1,
                offset=rank,
                global_batch=workers,
                origin_iteration=0,
                origin_position=0,
                share_from=iteration,
                share_until=iteration,
                watermark=iteration,
                placement_version=1,
                stop_at=ITERATIONS,
                evaluator=case.evaluates and rank == 0,
                decision_timeout_s=60.0,
            )
        )

    def on_say(message: Any) -> None:
        if isinstance(message, WorkerHello):
            control.send(message.port)
            blocks, ports = control.recv()
            key = keys.data_key(bytes.fromhex(holder.key), rank, order.instance)
            place: dict[str, Any] = {"incarnation": 0, "version": 1, "generation": 1, "blocks": blocks}
            if order.spec.reduces:
                peers = [PeerAddress(rank=each, host=HOST, port=port) for each, port in enumerate(ports)]
                link.give(placement=Placement(servers=[], peers=peers, **place))
            else:
                server = ServerAddress(index=0, instance="server0", host=HOST, port=ports[0], key=key)
                link.give(placement=Placement(servers=[server], **place))
            grant(0)
        elif isinstance(message, IterationReport):
            grant(message.iteration + 1)

    def save(arrays: Any) -> None:
        with tempfile.TemporaryFile() as file:
            write_npz(file, arrays)

    order, holder = process_order(case, "worker", rank, workers), process_order(case, "server", 0, workers)
    link = Link(on_say)
    large(layers=1, width=16, words=64).replica().update(torch.arange(1).numpy())  # what torch takes for any model
    before = resident("VmRSS")
    forget()
    train(order, link, save, Local(allow_code=True))
    control.send(resident() - before)


def measure(case: Case) -> dict[str, Any]:
    """The peak of the first worker of one job."""
    workers = 2 if case.communication == "all-reduce" else 1
    with spawning(ask=False) as start:
        controls = [start(be_worker, case, rank, workers) for rank in range(workers)]
        blocks, *ports = start(be_server, case).recv() if case.communication == "servers" else ([],)
        own_ports = [control.recv() for control in controls]
        for control in controls:
            control.send((blocks, ports or own_ports))
        peak, *_ = [control.recv() for control in controls]
    model = 4 * large(**case.sizes).layout.size
    ratio = round(peak / model, 2)
    return {
        "case": case.name,
        "model_mib": round(model / 2**20),
        "peak_mib": round(peak / 2**20),
        "ratio": ratio,
        "bar": case.bar,
        "reached": ratio <= case.bar,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each case; 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="cases whose names begin so")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    found = []
    for case in (case for case in CASES if case.name.startswith(given.only)):
        found.append(row := measure(case))
        if not given.json:
            verdict = f"(target {case.bar:g}): {'reached' if row['reached'] else 'missed'}"
            text = f"{row['case']}: {row['peak_mib']} MiB, {row['ratio']:.2f} times the model {verdict}\n"
            sys.stdout.write(text)
            sys.stdout.flush()
    if given.json:
        sys.stdout.write(json.dumps({"cases": found}) + "\n")
    return 0 if all(row["reached"] for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())

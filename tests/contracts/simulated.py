"""The simulated worker on a machine of one sample per second, with servers that do as a script says."""

from types import SimpleNamespace
from typing import Any

from controlplane.protocol.spec import Synchronization
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.machines import CpuMachine, Machine
from controlplane.simulator.servers import Servers
from controlplane.simulator.workers import SimulatedWorker
from tests.contracts.script import Script, Stage, Where
from tests.simulator.worlds import alike, spec, world

LONG_S = 1000.0
"""Longer than any iteration, and shorter than a share is awaited."""


class ScriptedServers(Servers):
    """Each version is there when it is asked for; updates of older generations are refused."""

    def __init__(self, cluster: Cluster, stage: Stage) -> None:
        super().__init__(cluster.kernel, None)
        self._cluster, self._stage = cluster, stage

    def tell(self, where: Where, iteration: int, done: int = 1) -> None:
        """What the script says there reaches the worker at once, but not in the middle of what it does."""
        for orders in self._stage.moments(where, iteration, done):
            self._cluster.kernel.after(0.0, self._cluster.workers[0].receive, orders)

    def pull(self, puller: Any, iteration: int) -> None:
        self.tell("pull", iteration)
        self._cluster.kernel.after(0.0, self._answer, [(puller, puller.attempt)])

    def push(self, rank: int, iteration: int, samples: int) -> bool:
        self.tell("push", iteration)
        return self._cluster.workers[0].protocol.term >= self._stage.term


class ScriptedMachine:
    """Notes what it is given to compute, and has the script continue after each sample."""

    def __init__(self, machine: Machine, worker: SimulatedWorker, cluster: Cluster, stage: Stage) -> None:
        self._machine, self._worker, self._cluster, self._stage = machine, worker, cluster, stage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def finish_s(self, samples: int, began_s: float, iteration: int) -> float:
        assert self._worker.protocol.task is not None
        self._stage.started.append(self._worker.protocol.task)
        servers: Any = self._cluster.servers
        for done in range(1, samples + 1):
            self._cluster.kernel.at(began_s + done, self._processed, servers, iteration, done, len(self._stage.started))
        return self._machine.finish_s(samples, began_s, iteration)

    def _processed(self, servers: ScriptedServers, iteration: int, done: int, started: int) -> None:
        if started == len(self._stage.started) and self._worker.iteration == iteration:
            servers.tell("compute", iteration, done)


def play(script: Script) -> Stage:
    """What it makes of ``script``."""
    stage = Stage(script)
    scenario = world(spec=spec(workers=1, servers=1), groups=alike(1, CpuMachine(samples_per_second=1.0)))
    cluster = Cluster(scenario, Synchronization(), seed=1)
    cluster.driver = SimpleNamespace(  # type: ignore[assignment]
        append_event=lambda event: stage.take(event.message), ledger=None
    )
    cluster.servers = ScriptedServers(cluster, stage)
    worker = cluster.workers[0]
    worker.machine = ScriptedMachine(worker.machine, worker, cluster, stage)
    while (orders := stage.next_at_rest()) is not None:
        worker.receive(orders)
        cluster.kernel.run(until_s=cluster.kernel.now + LONG_S)
    return stage

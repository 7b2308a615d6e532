"""Everything of one run in virtual time: workers, servers, network, and the driver of the engine.

It plays what processes do from their start to the job's end, and nothing that decides anything.
"""

from msgspec.structs import replace

from controlplane.core.commands import IssuePlacement
from controlplane.core.events import Assignment, JobSubmitted, ProcessDied, ServerHeard, SlotsAssigned
from controlplane.policies.registry import resolve
from controlplane.protocol.messages import ServerHello
from controlplane.protocol.orders import Orders, ServerOrders
from controlplane.protocol.spec import JobSpec, Synchronization
from controlplane.simulator.control import BEGIN_MS, Driver, Recording
from controlplane.simulator.disturbances import Disturbances
from controlplane.simulator.errors import Stuck
from controlplane.simulator.kernel import Kernel
from controlplane.simulator.machines import build_machine
from controlplane.simulator.network import Network
from controlplane.simulator.numerics.training import Training
from controlplane.simulator.scenario import Happening, Scenario
from controlplane.simulator.servers import Servers
from controlplane.simulator.waiting import who_waits
from controlplane.simulator.workers import SimulatedWorker

ELEMENT_BYTES = 4
NOTICE_S = 0.05
"""How soon an agent sees that a process of its machine has ended."""
AGENT_OF_SERVERS = 1
PATIENCE_S = 120.0
"""A deadline of the engine's own may free the others for so long: a process that never says hello has 60 s."""


class Cluster:
    """One job of a scenario under one choice of policies."""

    def __init__(
        self, scenario: Scenario, synchronization: Synchronization, *, seed: int, recording: Recording | None = None
    ) -> None:
        self.scenario = scenario
        self.spec: JobSpec = replace(scenario.spec, synchronization=synchronization, seed=seed)
        self.kernel = Kernel()
        self.driver = Driver(self.kernel, resolve, scenario.control, recording=recording)
        self.driver.job = self
        self.parameter_count = sum(scenario.tensor_sizes)
        self.mathematics = Training(scenario.numerics, self, seed) if scenario.numerics is not None else None
        self.sample_count = self.mathematics.sample_count if self.mathematics is not None else 1
        self.bytes = self.parameter_count * ELEMENT_BYTES
        self.sizes: dict[int, int] = {}
        """Bytes of parameters at each server, by the placement."""
        self._placement = 0
        self.began_s = 0.0
        """When the job began to run."""
        groups = scenario.machines
        servers = [scenario.odd_servers.get(index, scenario.servers) for index in range(self.spec.servers)]
        self.network = Network(self.kernel, [group.link for group in groups], servers)
        self.servers = Servers(self.kernel, self.mathematics)
        wavering = Disturbances(scenario.wavering, workers=len(groups), seed=seed)
        self.workers = [
            SimulatedWorker(
                rank,
                build_machine(group.machine, rank=rank, seed=seed, length_s=scenario.horizon_s, wavering=wavering),
                self,
            )
            for rank, group in enumerate(groups)
        ]

    @property
    def now(self) -> float:
        """Virtual time, in seconds."""
        return self.kernel.now

    def run(self) -> None:
        """From submission to the job's end, or to the horizon.

        Raises:
            Stuck: if nothing can happen any more.
        """
        self._start()
        self.kernel.run(until_s=self.scenario.horizon_s)

    def hear_orders(self, rank: int, orders: Orders) -> None:
        """A worker gets its orders."""
        if self.workers[rank].orders is None:
            self.began_s = self.now
        self.workers[rank].hear(orders)

    def hear_server_orders(self, orders: ServerOrders) -> None:
        """A server gets its orders."""
        self.servers.hear(orders)

    def hear_placement(self, command: IssuePlacement) -> None:
        """A worker gets the placement: the same for all, so the first one tells it."""
        if command.version <= self._placement:
            return
        self._placement = command.version
        self.sizes = {}
        for block in command.blocks:
            held = self.sizes.get(block.server, 0)
            self.sizes[block.server] = held + (block.stop - block.start) * ELEMENT_BYTES

    def signs_of_life(self) -> dict[str, int]:
        """Everybody's last, as heartbeats would have brought them."""
        now_ms = BEGIN_MS + int(self.now * 1000)
        seen = {f"server:{index}:s{index}.0.1": now_ms for index in range(self.spec.servers)}
        for worker in self.workers:
            silent_s = worker.silent_s
            at_ms = now_ms if silent_s is None else BEGIN_MS + int(silent_s * 1000)
            seen[f"worker:{worker.rank}:{worker.instance}"] = at_ms
        return seen

    def _start(self) -> None:
        driver, spec = self.driver, self.spec
        driver.append(JobSubmitted(spec=spec))
        workers = [Assignment(role="worker", index=rank, agent=rank + 2, slot=0) for rank in range(spec.workers)]
        servers = [
            Assignment(role="server", index=index, agent=AGENT_OF_SERVERS, slot=index) for index in range(spec.servers)
        ]
        driver.append(SlotsAssigned(assignments=workers + servers))
        for index in range(spec.servers):
            hello = ServerHello(
                number=1, host="127.0.0.1", port=7000 + index, tensor_sizes=list(self.scenario.tensor_sizes)
            )
            driver.tell(ServerHeard(index=index, instance=f"s{index}.0.1", message=hello))
        for worker, group in zip(self.workers, self.scenario.machines, strict=True):
            self.kernel.at(group.starts_s, worker.hello)
        for happening in self.scenario.happenings:
            self.kernel.at(happening.at_s, self._happen, happening)

    def _happen(self, happening: Happening) -> None:
        index, role = happening.index, happening.role
        if role == "worker":
            self.workers[index].die(silent=happening.kind == "vanish")
        if happening.kind == "vanish":
            return
        status, instance = (0 if happening.kind == "leave" else -9), f"{role[0]}{index}.0.1"
        died = ProcessDied(role=role, index=index, instance=instance, status=status)
        self.kernel.after(NOTICE_S, self.driver.tell, died)

    def nothing_came_of_it(self, quiet_s: float) -> None:
        """A deadline came, and the engine had nothing to say; so it has been for ``quiet_s``.

        Raises:
            Stuck: if nobody else has anything to do either.
        """
        allowed_s = max(PATIENCE_S, self.spec.stop.seconds or 0.0)
        if quiet_s > allowed_s and self.kernel.pending <= 1:
            raise Stuck(
                f"{self.scenario.name}: nothing can happen any more at {self.now:.3f} s, and the job is "
                f"{self.driver.state}: {who_waits(self.workers, self.servers)}"
            )

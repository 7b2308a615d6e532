"""Everything of one run in virtual time: workers, servers, network, and the driver of the engine.

It simulates what processes do from their start to the job's end; it makes no decisions.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from controlplane.core.choices import Partitioned
from controlplane.core.commands import IssuePlacement, MoveProcess, RequestSlot, RollBack, StartProcess, StopProcess
from controlplane.core.events import (
    Assignment,
    DrainRequested,
    ExclusionRequested,
    InclusionRequested,
    JobSubmitted,
    ProcessDied,
    SlotRefused,
    SlotsAssigned,
)
from controlplane.policies.registry import resolve
from controlplane.policies.wording import listing
from controlplane.policies.wording import workers as named
from controlplane.protocol.messages import ServerReport
from controlplane.protocol.orders import ELEMENT_BYTES, Orders, ServerOrders
from controlplane.protocol.spec import JobSpec, Synchronization
from controlplane.protocol.worker import Phase
from controlplane.simulator.block_quorums import BlockQuorums
from controlplane.simulator.block_transfer import BlockTransfer
from controlplane.simulator.checkpoints import Checkpoints
from controlplane.simulator.cohort import LEAST, Cohort
from controlplane.simulator.control import BEGIN_MS, Driver, Player, Recorder
from controlplane.simulator.disturbances import Disturbances
from controlplane.simulator.errors import Stuck
from controlplane.simulator.kernel import Kernel
from controlplane.simulator.machines import Machines, build_machine
from controlplane.simulator.network import Network
from controlplane.simulator.numerics.training import Training
from controlplane.simulator.questions import Questions
from controlplane.simulator.reassignment import Helpers, Reassignment
from controlplane.simulator.refilling import Refills
from controlplane.simulator.scenario import Happening, Scenario
from controlplane.simulator.server_processes import NOTICE_S, RESTART_S, ServerProcesses
from controlplane.simulator.servers import Servers
from controlplane.simulator.workers import SimulatedWorker

EXCHANGES_APART = 1_000_003
"""Random streams of exchanges with servers."""
AGENT_OF_SERVERS = 1
OPERATOR: Final = "the scenario"
"""The actor of simulated operator requests."""
REPORT_S: Final = 1.0
"""How often servers report."""
SCHEDULED_S: Final = 1.0
"""How long the scheduler takes to notice that a process waits for a slot."""
WATCH_EVENTS: Final = 100
"""Events between two progress checks: well under a second, including computed training."""
PATIENCE_S = 120.0
"""How long to wait for a deadline of the engine before a run counts as stuck: a missing hello times out after 60 s.
"""


class Cluster:
    """One job of a scenario under one choice of policies."""

    def __init__(
        self,
        scenario: Scenario,
        synchronization: Synchronization,
        *,
        seed: int,
        recording: Recorder | None = None,
        reassignment: Reassignment | None = None,
        until_target: bool = False,
        in_step: int | None = LEAST,
        player: Player | None = None,
    ) -> None:
        """``until_target``: the run may end once the target is reached. ``in_step``: at least this many workers that
        begin an iteration at the same instant are simulated together, which is faster and does not change results;
        None: never.
        """
        self._until_target = until_target
        self.scenario = scenario
        self.spec: JobSpec = replace(scenario.spec, synchronization=synchronization, seed=seed)
        self.kernel = Kernel()
        self.driver = Driver(self.kernel, resolve, scenario.control, recording=recording, player=player)
        self.driver.job = self
        self.parameter_count = sum(scenario.tensor_sizes)
        self.mathematics = Training(scenario.numerics, self, seed) if scenario.numerics is not None else None
        self.sample_count = self.mathematics.sample_count if self.mathematics is not None else self._times_only_samples
        self.bytes = self.parameter_count * ELEMENT_BYTES
        self.sizes: dict[int, int] = {}
        """Bytes of parameters on each server, by the placement."""
        self._placement = 0
        self.helpers = Helpers(reassignment) if reassignment is not None else None
        self._gone: set[int] = set()
        """Workers whose machines no longer run processes of this job."""
        self._has_counted = False
        """Whether any worker was ever a member of the roster."""
        self.began_s = 0.0
        """When the job began to run."""
        groups = self._groups = scenario.machines
        most = self.spec.servers + scenario.spare_servers
        servers = self._server_specs = [scenario.odd_servers.get(at, scenario.servers) for at in range(most)]
        exchanges = Disturbances(scenario.exchanges, workers=len(groups) * len(servers), seed=seed + EXCHANGES_APART)
        self.network = Network(
            self.kernel,
            [group.link for group in groups],
            servers,
            exchanges,
            seed=seed,
            beside=self.spec.servers if scenario.servers_beside_workers else 0,
        )
        self.overlaps = scenario.overlaps
        self.server_processes = ServerProcesses(
            self.kernel, self.driver.append_event, scenario.tensor_sizes, initial=self.spec.servers
        )
        self.moves = BlockTransfer(self.kernel, self.network, self.server_processes)
        self.checkpoints = Checkpoints(
            self.kernel,
            self.server_processes,
            self.mathematics,
            every=self.spec.checkpoint.every if self.spec.checkpoint is not None else None,
            write_s=lambda index, size: servers[index].disk_s(size),
        )
        self.servers = Servers(self.kernel, self.mathematics, self._reach)
        self.quorums = BlockQuorums(self.servers) if scenario.by_block else None
        wavering = Disturbances(scenario.wavering, workers=len(groups), seed=seed)
        self.questions = Questions(self.kernel, self._worker, self.network.way_s, are_asked=self.spec.asks_peers)
        self.refills = Refills(
            self.kernel,
            self.network,
            self.server_processes,
            self.servers,
            self.mathematics,
            elements=self.parameter_count,
        )
        self.workers = [
            SimulatedWorker(
                rank,
                build_machine(group.machine, rank=rank, seed=seed, length_s=scenario.horizon_s, wavering=wavering),
                self,
            )
            for rank, group in enumerate(groups)
        ]
        self.machines = Machines([worker.machine for worker in self.workers])
        self._cohort = Cohort(self, least=in_step) if in_step is not None else None
        self.servers.in_step = self._cohort

    @property
    def _times_only_samples(self) -> int:
        """Only times matter, but splits must have samples: ten times the samples of an iteration."""
        data = resolve("data", self.spec.synchronization.data)
        return 10 * self.spec.global_batch if isinstance(data, Partitioned) else 1

    @property
    def now(self) -> float:
        """Virtual time, in seconds."""
        return self.kernel.now

    def run(self, watch: Callable[[], None] | None = None) -> None:
        """Run from submission to the job's end, or to the horizon. ``watch`` is called regularly, and may raise.

        Raises:
            Stuck: if no further event can happen.
        """
        self._start()
        try:
            self._go_on(watch)
        finally:
            self._settle()

    def _go_on(self, watch: Callable[[], None] | None) -> None:
        while self.kernel.run(until_s=self.scenario.horizon_s, at_most=math.inf if watch is None else WATCH_EVENTS):
            assert watch is not None
            watch()

    def _settle(self) -> None:
        """Write the cohort's state back to its workers before any other event changes workers or servers."""
        if self._cohort is not None:
            self._cohort.settle()

    def target_reached(self) -> None:
        """The computed training has reached its target."""
        if self._until_target:
            self.kernel.halt()

    def start_process(self, command: StartProcess) -> None:
        """A machine runs a process, unless that machine is gone."""
        self._settle()
        if command.role == "server":
            reads = self.sizes.get(command.index, 0) if self.refills.is_whole else 0
            read_s = self._server_specs[command.index].disk_s(reads)
            self.server_processes.start(command, RESTART_S + read_s)
            return
        worker, group = self.workers[command.index], self._groups[command.index]
        if worker.instance == command.instance:
            self.kernel.at(max(self.now, group.starts_s), worker.hello)
        elif command.index not in self._gone:
            worker.begin_again(command.instance)
            self.kernel.after(RESTART_S, worker.hello)

    def stop_process(self, command: StopProcess) -> None:
        """A process ends as ordered, unless a newer instance has started."""
        self._settle()
        if command.role == "server":
            self.server_processes.stop(command)
        elif self.workers[command.index].instance == command.instance and self.workers[command.index].is_alive:
            self._end_worker(command.index, status=0)

    def move_process(self, command: MoveProcess) -> None:
        """The scheduler finds a free slot on the machine of a worker that should join again."""
        waits = command.role == "worker" and command.restart is not None and command.restart.wants_slot
        if waits and command.index not in self._gone:
            self.kernel.after(SCHEDULED_S, self._give_slot, command.index, command.instance)

    def request_slot(self, command: RequestSlot) -> None:
        """Grant a slot if the scenario has a spare machine."""
        event: SlotsAssigned | SlotRefused
        if command.role == "server" and command.index < len(self._server_specs):
            place = Assignment(role="server", index=command.index, agent=AGENT_OF_SERVERS, slot=command.index)
            event = SlotsAssigned(assignments=[place])
        else:
            event = SlotRefused(role=command.role, index=command.index, reason="the scenario has no spare machine")
        self.kernel.after(0.0, self.driver.append_event, event)

    def roll_back(self, command: RollBack) -> None:
        """All servers restart from their checkpoints on disk; new workers will say hello."""
        self._settle()
        self.servers.go_back(command.to_iteration)
        self.refills.go_back()
        self.moves.go_back()
        self.checkpoints.go_back(command.to_iteration)

    def receive_orders(self, rank: int, instance: str, orders: Orders) -> None:
        """A worker gets its orders, unless they are for an earlier instance."""
        worker, cohort = self.workers[rank], self._cohort
        if instance != worker.instance:
            return
        if cohort is not None and cohort.has(rank):
            if cohort.receive(worker, orders):
                return
            cohort.settle()
        if not self.servers.updates and worker.orders is None:
            self.began_s = self.now
        worker.receive(orders)

    def receive_server_orders(self, index: int, orders: ServerOrders) -> None:
        """A server gets its orders."""
        self._settle()
        self.checkpoints.receive(index, orders)
        self.servers.receive(orders)
        self._has_counted |= bool(orders.members)
        if self._has_counted and not orders.members:
            sender = index, self.server_processes.instance(index), orders.generation
            self.kernel.after(REPORT_S, self._say_how_far, *sender)
        self.refills.receive(index, orders)
        self.moves.receive(index, orders, self.servers.version)

    def receive_placement(self, command: IssuePlacement) -> None:
        """A worker gets the placement. It is the same for all workers, so the first one sets it."""
        if command.peers:
            self.workers[command.rank].protocol.peers.enlist(command.peers, (command.incarnation, command.generation))
        if command.version <= self._placement:
            return
        self._settle()
        self._placement = command.version
        self.refills.place(command.blocks)
        if self.quorums is not None:
            self.quorums.place(command.blocks)
        self.sizes = {}
        for block in command.blocks:
            self.sizes[block.server] = self.sizes.get(block.server, 0) + block.bytes

    def heartbeats(self) -> dict[str, int]:
        """The last heartbeat of every process."""
        now_ms = BEGIN_MS + int(self.now * 1000)
        seen = self.server_processes.heartbeats(BEGIN_MS)
        for worker in self.workers:
            silent_s = worker.silent_s
            at_ms = now_ms if silent_s is None else BEGIN_MS + int(silent_s * 1000)
            seen[f"worker:{worker.rank}:{worker.instance}"] = at_ms
        return seen

    def _start(self) -> None:
        driver, spec = self.driver, self.spec
        driver.append(JobSubmitted(spec=spec))
        workers = [_place_of(rank) for rank in range(spec.workers)]
        groups = self._groups
        here = [place for place in workers if groups[place.index].joins_s is None]
        for place in workers[len(here) :]:
            self.kernel.at(groups[place.index].joins_s or 0.0, driver.append, SlotsAssigned(assignments=[place]))
        servers = [
            Assignment(role="server", index=index, agent=AGENT_OF_SERVERS, slot=index) for index in range(spec.servers)
        ]
        driver.append(SlotsAssigned(assignments=here + servers))
        self.server_processes.begin()
        for happening in self.scenario.happenings:
            self.kernel.at(happening.at_s, self._happen, happening)

    def _worker(self, rank: int) -> SimulatedWorker:
        return self.workers[rank]

    def _reach(self, version: int) -> None:
        """The parameters have reached that version with all workers' updates."""
        if self.quorums is not None:
            self.quorums.reach(version)
        self.checkpoints.reach(version)
        self.moves.reach(version)

    def _happen(self, happening: Happening) -> None:
        self._settle()
        index = happening.index
        if happening.kind == "drain":
            self.driver.append(DrainRequested(actor=OPERATOR, role=happening.role, index=index))
        elif happening.kind == "exclude":
            self.driver.append(ExclusionRequested(actor=OPERATOR, rank=index))
        elif happening.kind == "include":
            self.driver.append(InclusionRequested(actor=OPERATOR, rank=index))
        elif happening.role == "server":
            self.refills.lose(index)
            self.server_processes.die(index, happening.kind)
        elif happening.kind == "vanish":
            self.workers[index].die(silent=True)
        else:
            self._gone |= {index} if happening.kind == "leave" else set()
            self._end_worker(index, status=0 if happening.kind == "leave" else -9)

    def _end_worker(self, rank: int, *, status: int) -> None:
        """A worker's process ends, and its agent notices soon."""
        self.workers[rank].die(silent=False)
        died = ProcessDied(role="worker", index=rank, instance=self.workers[rank].instance, status=status)
        self.kernel.after(NOTICE_S, self._noticed, died)

    def _say_how_far(self, index: int, instance: str, generation: int) -> None:
        """A server reports its version; it matters if the job has no members, since new workers start from there."""
        version = self.servers.version
        self.server_processes.say(
            index,
            instance,
            lambda number: ServerReport(
                number=number,
                iteration=version,
                highest=version,
                generation=generation,
                bytes_in=0,
                bytes_out=0,
                busy_s=0.0,
            ),
        )

    def _give_slot(self, rank: int, instance: str) -> None:
        if self.workers[rank].instance == instance:
            self.driver.append_event(SlotsAssigned(assignments=[_place_of(rank)]))

    def _noticed(self, died: ProcessDied) -> None:
        """The end of a process was noticed; instances that were already replaced are ignored."""
        if self.workers[died.index].instance == died.instance:
            self.driver.append_event(died)

    def nothing_came_of_it(self, quiet_s: float) -> None:
        """A deadline passed without a command from the engine, which has been quiet for ``quiet_s``.

        Raises:
            Stuck: if no other event is due.
        """
        allowed_s = max(PATIENCE_S, self.spec.stop.seconds or 0.0)
        if quiet_s > allowed_s and self.kernel.pending <= 1:
            self._settle()
            raise Stuck(
                f"{self.scenario.name}: no further event can happen at {self.now:.3f} s, and the job is "
                f"{self.driver.state} ({self.driver.why}): {_explain_deadlock(self.workers, self.servers)}"
            )


def _place_of(rank: int) -> Assignment:
    """Each worker has its own machine, with one slot."""
    return Assignment(role="worker", index=rank, agent=rank + 2, slot=0)


def _explain_deadlock(workers: Sequence[SimulatedWorker], servers: Servers) -> str:
    """A sentence with every worker and what it waits for."""
    groups: dict[str, list[int]] = defaultdict(list)
    for worker in workers:
        groups[_what_for(worker, servers)].append(worker.rank)
    return "; ".join(f"{named(ranks)} {what}" for what, ranks in groups.items())


def _what_for(worker: SimulatedWorker, servers: Servers) -> str:
    orders, k = worker.orders, worker.iteration
    if worker.silent_s is not None:
        return f"silent since {worker.silent_s:g} s"
    if not worker.is_alive:
        return "dead"
    if worker.phase is Phase.PULL:
        awaited = listing(f"w{rank}" for rank in servers.awaited())
        return f"waits for version {k}, which needs iteration {servers.version} of {awaited or 'no worker'}"
    if worker.phase is Phase.STARTING:
        return "waits for its first orders"
    if worker.phase is Phase.SHARE:
        return f"waits for its share of iteration {k}"
    if worker.phase is Phase.STALE:
        return f"pushed iteration {k}, which did not count, and waits for orders"
    if worker.phase is Phase.BOUNDARY and orders is not None:
        held = ", by orders to hold" if orders.hold else ""
        return f"waits for the grant of iteration {k}, granted up to {orders.watermark}{held}"
    return worker.phase.name.lower()

"""Tells an engine a story: events with their times, and what it answered."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from controlplane.core.commands import AnyCommand, DeclineRequest, IssueOrders, SetRoster, StartProcess
from controlplane.core.engine import Engine
from controlplane.core.events import (
    Assignment,
    Entry,
    Event,
    JobSubmitted,
    NumberedWorkerMessage,
    ProcessDied,
    ServerMessageReceived,
    SlotsAssigned,
    TimePassed,
    WorkerMessageReceived,
)
from controlplane.policies.registry import resolve
from controlplane.protocol.messages import (
    BlocksFilled,
    Copies,
    CopiesHeld,
    IterationReport,
    ServerHello,
    ServerReport,
    WorkerFinished,
    WorkerHello,
)
from controlplane.protocol.orders import Orders
from controlplane.protocol.spec import parse_spec

CommandT = TypeVar("CommandT")

START_MS = 1_000_000
TENSOR_SIZES = [640, 10]
WORKERS_AGENT, SERVERS_AGENT = 1, 2


def document(**changes: Any) -> dict[str, Any]:
    """A small job; ``changes`` replace whole fields."""
    base: dict[str, Any] = {
        "name": "digits",
        "workload": {"name": "softmax-regression", "dataset": "digits"},
        "workers": 4,
        "servers": 2,
        "batch_size": 64,
        "synchronization": {"batching": {"name": "uniform"}},
        "stop": {"iterations": 400},
    }
    return base | changes


REPORT_MS = 10
"""Between two reports: iterations of two workers or more are then long enough for the detector to look at each."""

LB_BSP = {"batching": {"name": "lb-bsp-cpu", "predictor": "memoryless"}}


class Story:
    """One job's log, told one event at a time: of the lives that were ordered last, with message numbers for each."""

    def __init__(self, **changes: Any) -> None:
        self.spec = parse_spec(document(**changes))
        self.engine = Engine(job=7, resolve=resolve)
        self.entries: list[Entry] = []
        self.commands: list[AnyCommand] = []
        self.orders: dict[int, Orders] = {}
        self.numbers: dict[str, int] = {}
        self.instances: dict[str, str] = {}
        self.now_ms = START_MS
        self.sample_count = 1437
        self.own_samples: dict[int, int] = {}
        """By rank, where each worker keeps samples of its own."""

    def see(self, event: Event, *, after_ms: int = 1) -> list[AnyCommand]:
        """Append the event and hand it to the engine."""
        self.now_ms += after_ms
        entry = Entry(id=f"{self.now_ms}-{len(self.entries)}", event=event)
        self.entries.append(entry)
        commands = self.engine.handle(entry)
        assert {command.cause for command in commands} <= {entry.id}
        assert all(command.reason for command in commands)
        self.commands += commands
        for command in commands:
            if isinstance(command, StartProcess):
                self.instances[f"{command.role[0]}{command.index}"] = command.instance
            elif isinstance(command, IssueOrders):
                self.orders[command.rank] = command.orders
        return commands

    def declined(self, event: Event) -> str:
        """Why what a person asks for has no place."""
        (answer,) = self.see(event)
        assert isinstance(answer, DeclineRequest), answer
        return answer.reason

    def given(self, kind: type[CommandT]) -> list[CommandT]:
        """Every command of that kind so far."""
        return of(kind, self.commands)

    def submitted(self) -> "Story":
        """Until the job waits for slots."""
        self.see(JobSubmitted(spec=self.spec))
        return self

    def starting(self) -> "Story":
        """Until its processes were ordered: workers on agent 1, servers on agent 2."""
        self.submitted()
        workers = [
            Assignment(role="worker", index=rank, agent=WORKERS_AGENT, slot=rank) for rank in range(self.spec.workers)
        ]
        servers = [
            Assignment(role="server", index=index, agent=SERVERS_AGENT, slot=index)
            for index in range(self.spec.servers)
        ]
        self.see(SlotsAssigned(assignments=workers + servers))
        return self

    def running(self) -> "Story":
        """Until everyone has said hello."""
        self.starting()
        for index in range(self.spec.servers):
            self.server_hello(index)
        for rank in range(self.spec.workers):
            self.hello(rank)
        return self

    def hello(self, rank: int, **changes: Any) -> list[AnyCommand]:
        """The worker's first message, which it repeats after a reconnect."""
        self.numbers.setdefault(self.instance("w", rank), 1)
        samples = {"sample_count": self.sample_count, "own_samples": self.own_samples.get(rank, 0)}
        listens = {"host": "127.0.0.1", "port": 8000 + rank} if self.spec.asks_peers else {}
        hello = WorkerHello(number=1, parameter_count=sum(TENSOR_SIZES), **samples, **listens)
        return self.say(rank, hello, **changes)

    def server_hello(self, index: int) -> list[AnyCommand]:
        """The server's first message."""
        hello = ServerHello(number=1, host="127.0.0.1", port=7000 + index, tensor_sizes=TENSOR_SIZES)
        self.numbers[self.instance("s", index)] = 1
        return self.see(ServerMessageReceived(index=index, instance=self.instance("s", index), message=hello))

    def server_report(self, index: int, *, highest: int, **told: Any) -> list[AnyCommand]:
        """The server says how far its blocks are, under the newest roster."""
        instance = self.instance("s", index)
        self.numbers[instance] += 1
        generation = self.given(SetRoster)[-1].generation
        fields = {"iteration": highest, "highest": highest, "generation": generation}
        report = ServerReport(number=self.numbers[instance], bytes_in=0, bytes_out=0, busy_s=0.0, **fields, **told)
        return self.see(ServerMessageReceived(index=index, instance=instance, message=report))

    def copies(self, rank: int, *held: tuple[int, int, list[int]]) -> list[AnyCommand]:
        """The worker says which (version, steps) it has of which of the lost blocks."""
        copies = [Copies(version=version, steps=steps, blocks=blocks) for version, steps, blocks in held]
        refill = max(1, self.orders[rank].refill)
        return self.say(rank, CopiesHeld(number=self.next_number(rank), refill=refill, copies=copies))

    def filled(self, index: int, blocks: list[int]) -> list[AnyCommand]:
        """The server has begun these blocks with what it was given."""
        instance = self.instance("s", index)
        self.numbers[instance] = self.numbers.get(instance, 1) + 1
        message = BlocksFilled(number=self.numbers[instance], blocks=blocks)
        return self.see(ServerMessageReceived(index=index, instance=instance, message=message))

    def instance(self, role: str, index: int) -> str:
        """The life of ``w`` or ``s`` that was ordered last."""
        return self.instances.get(f"{role}{index}", f"{role}{index}.0.1")

    def say(
        self, rank: int, message: NumberedWorkerMessage, *, instance: str = "", after_ms: int = 1
    ) -> list[AnyCommand]:
        """Any message of a worker."""
        event = WorkerMessageReceived(rank=rank, instance=instance or self.instance("w", rank), message=message)
        return self.see(event, after_ms=after_ms)

    def next_number(self, rank: int) -> int:
        """The worker's next message number."""
        instance = self.instance("w", rank)
        self.numbers[instance] = self.numbers.get(instance, 1) + 1
        return self.numbers[instance]

    def report(self, rank: int, iteration: int, *, compute_s: float = 0.1, **changes: Any) -> list[AnyCommand]:
        """The worker's report of an iteration, as its orders have it."""
        return self.say(rank, self.a_report(rank, iteration, compute_s=compute_s, **changes), after_ms=REPORT_MS)

    def a_report(self, rank: int, iteration: int, *, compute_s: float = 0.1, **changes: Any) -> IterationReport:
        """A report that no one has sent yet."""
        orders = self.orders[rank]
        fields: dict[str, Any] = {
            "number": changes.pop("number", None) or self.next_number(rank),
            "generation": orders.generation,
            "iteration": iteration,
            "samples": orders.share,
            "position": 0,
            "loss": 1.0,
            "compute_s": compute_s,
            "push_s": 0.0,
            "pull_s": 0.0,
            "waiting_s": 0.0,
            "coordination_s": 0.0,
        }
        return IterationReport(**(fields | changes))

    def iterate(self, iterations: int, *, speeds: Mapping[int, float], start: int = 0) -> None:
        """Every worker of ``speeds`` (samples per second) reports that many iterations."""
        for iteration in range(start, start + iterations):
            for rank, speed in speeds.items():
                self.report(rank, iteration, compute_s=self.orders[rank].share / speed)

    def finish(self, rank: int, iteration: int, *, model_saved: bool = False) -> list[AnyCommand]:
        """The worker has reached its end."""
        message = WorkerFinished(number=self.next_number(rank), iteration=iteration, model_saved=model_saved)
        return self.say(rank, message)

    def kill(self, rank: int, *, status: int = -9, **fields: Any) -> list[AnyCommand]:
        """An agent reports the end of a worker's process, or is lost with it."""
        return self.see(
            ProcessDied(role="worker", index=rank, instance=self.instance("w", rank), status=status, **fields)
        )

    def kill_server(self, index: int, *, status: int = -9) -> list[AnyCommand]:
        """An agent reports the end of a server's process."""
        return self.see(ProcessDied(role="server", index=index, instance=self.instance("s", index), status=status))

    def tick(
        self, *, after_ms: int, silent: frozenset[int] = frozenset(), away: Sequence[int] = ()
    ) -> list[AnyCommand]:
        """A deadline comes; every process but the ``silent`` workers, and those of ``away`` agents, gave a sign."""
        now_ms = self.now_ms + after_ms
        workers = [rank for rank in range(self.spec.workers) if rank not in silent and WORKERS_AGENT not in away]
        servers = range(self.spec.servers) if SERVERS_AGENT not in away else ()
        seen = {f"worker:{rank}:{self.instance('w', rank)}": now_ms for rank in workers}
        seen |= {f"server:{index}:{self.instance('s', index)}": now_ms for index in servers}
        return self.see(TimePassed(seen=seen, away=list(away)), after_ms=after_ms)


def of(kind: type[CommandT], commands: list[AnyCommand]) -> list[CommandT]:
    """Those of that kind."""
    return [command for command in commands if isinstance(command, kind)]

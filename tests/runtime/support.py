"""A small engine and small driver parts, so that tests see each of the driver's steps."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import msgspec

from controlplane.core.commands import AnyCommand, IssueOrders
from controlplane.core.events import Entry, StopRequested, WorkerMessageReceived
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.orders import Orders
from controlplane.protocol.spec import JobSpec, parse_spec
from controlplane.runtime import log, names
from controlplane.runtime.coordinator import Surroundings
from controlplane.runtime.engines import AnyEngine, Engines
from controlplane.runtime.executor import JobFacts, decode_commands
from controlplane.runtime.places import Places
from controlplane.runtime.redis import Client
from controlplane.telemetry.models import MessageCursor

SPEC = parse_spec(
    {"name": "digits", "workload": "softmax-regression", "workers": 2, "batch_size": 8, "stop": {"iterations": 100}}
)
JOB = 7


class State(msgspec.Struct):
    """What the counting engine remembers."""

    cursor: str = "0-0"
    deadline_ms: int | None = None
    looks: bool = False
    """Its deadlines are those of a barrier's looks."""
    handled: int = 0
    over: bool = False


class CountingEngine:
    """Answers every report with orders numbered by how many entries it has handled; ends on a stop."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.failure: Exception | None = None

    @property
    def cursor(self) -> str:
        return self._state.cursor

    def needs_heartbeats(self, at_ms: float) -> bool:
        """At every deadline, unless it is that of a look."""
        return not self._state.looks

    def open_ledger(self) -> None:
        """Each report is answered."""

    @property
    def deadline_ms(self) -> int | None:
        return self._state.deadline_ms

    @property
    def over(self) -> bool:
        return self._state.over

    def handle(self, entry: Entry) -> list[AnyCommand]:
        state = self._state
        state.cursor, state.handled = entry.id, state.handled + 1
        state.over |= isinstance(entry.event, StopRequested)
        if not isinstance(entry.event, WorkerMessageReceived):
            return []
        event = entry.event
        orders = orders_numbered(state.handled)
        return [IssueOrders(cause=entry.id, reason="said", rank=event.rank, instance=event.instance, orders=orders)]

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._state)


class CountingEngines:
    """Makes counting engines, and counts how many."""

    def __init__(self) -> None:
        self.made = 0

    def new(self, job: int) -> AnyEngine:
        self.made += 1
        return CountingEngine(State())

    def restore(self, snapshot: bytes) -> AnyEngine:
        self.made += 1
        return CountingEngine(msgspec.msgpack.decode(snapshot, type=State))


@dataclass(kw_only=True)
class Driver:
    """A coordinator's surroundings over a real Redis, with a queue that only notes."""

    client: Client
    kind: Any = field(default_factory=CountingEngines)
    enqueued: list[int] = field(default_factory=list)
    stopping: Event = field(default_factory=Event)
    others_wait: bool = False
    places: Places = field(default_factory=lambda: Places(1, lambda: False))
    linger_s: float = 0.0

    def __post_init__(self) -> None:
        self.engines = self.fresh_engines()

    def fresh_engines(self) -> Engines:
        """As of a process that has just started."""
        return Engines(self.kind, facts)

    def around(self) -> Surroundings:
        """Surroundings that never wait unless told to."""
        return Surroundings(
            client=self.client,
            engines=self.engines,
            queue_is_empty=lambda: not self.others_wait,
            enqueue=self.enqueued.append,
            stopping=self.stopping,
            places=self.places,
            linger_s=self.linger_s,
        )


def facts(job: int) -> JobFacts:
    """A job with a key that tests know."""
    return JobFacts(number=job, key=b"k" * 32, spec=SPEC)


def report(number: int, *, rank: int = 0, instance: str = "w0.0.1", **changes: Any) -> WorkerMessageReceived:
    """A worker's report of iteration ``number - 2``: its hello was number 1."""
    values: dict[str, Any] = {
        "generation": 1,
        "iteration": number - 2,
        "samples": 8,
        "position": 16 * (number - 2),
        "loss": 0.5,
        "compute_s": 0.1,
        "push_s": 0.02,
        "pull_s": 0.01,
        "waiting_s": 0.3,
        "coordination_s": 0.001,
    }
    return WorkerMessageReceived(
        rank=rank, instance=instance, message=IterationReport(number=number, **(values | changes))
    )


def orders_numbered(sequence: int) -> Orders:
    """Orders that differ in their sequence alone."""
    return Orders(
        incarnation=0,
        generation=1,
        sequence=sequence,
        share=8,
        offset=0,
        global_batch=16,
        origin_iteration=0,
        origin_position=0,
        share_from=0,
        share_until=0,
        watermark=0,
        placement_version=1,
    )


def submit(client: Client, job: int = JOB, spec: JobSpec = SPEC) -> None:
    """Begin the job's log."""
    assert log.start_log(job, spec, client=client, salt=b"")


def answered(client: Client, job: int = JOB) -> list[tuple[int, str, AnyCommand]]:
    """Every command in the command stream: its sequence, its cause, itself."""
    found = []
    for _, entry in client.xrange(names.commands(job)):
        commands = decode_commands(entry[b"c"])
        found += [(int(entry[b"sequence"]) + n, command.cause, command) for n, command in enumerate(commands)]
    return found


def logged(client: Client, job: int = JOB) -> list[Entry]:
    """The whole log."""
    return log.read_entries(client, job, after="0-0", count=100_000, block_s=0)


def die() -> None:
    """As kill -9 would have it: no handler, no clean-up."""
    raise Died


class Died(BaseException):
    """Passes every ``except Exception``."""


Look = Callable[[], Any]


def durable_numbers(client: Client, job: int) -> dict[str, int]:
    """By process instance: the message number in Redis up to which the database has everything."""
    found = client.execute_command("HGETALL", names.durable(job))
    return {instance.decode(): int(number) for instance, number in found.items()}


def greeted(job: int, *ranks: int) -> None:
    """The hellos of these workers, message 1 of each, are stored."""
    for rank in ranks or (0,):
        MessageCursor.objects.create(job_id=job, instance=f"w{rank}.0.1", number=1)

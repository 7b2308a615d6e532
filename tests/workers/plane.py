"""A whole job in one process: the real engine decides, real trainers and servers carry it out as threads over loopback.

What Redis, Celery and the gateways do between them is a queue here: events go in one by one, commands come out.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from controlplane.core.commands import (
    AnyCommand,
    IssueOrders,
    IssuePlacement,
    IssueServerOrders,
    MoveJob,
    RejectMessage,
    RequestSlot,
    StartProcess,
    StopProcess,
)
from controlplane.core.context import EventRefused
from controlplane.core.engine import Engine
from controlplane.core.events import (
    Assignment,
    Entry,
    Event,
    JobSubmitted,
    ProcessDied,
    ServerMessageReceived,
    SlotsAssigned,
    TimePassed,
    WorkerMessageReceived,
)
from controlplane.core.states import JOB_OVER, JobState
from controlplane.policies.registry import check, resolve
from controlplane.protocol import keys
from controlplane.protocol.messages import Evaluation, IterationReport, ServerReport
from controlplane.protocol.orders import (
    CheckpointFolders,
    PeerAddress,
    Placement,
    ProcessOrder,
    ServerAddress,
    ServerOrders,
)
from controlplane.protocol.spec import Emulation, JobSpec
from tests.workers.driver import DEADLINE_S, MemoryServerLink, MemoryWorkerLink, Process, Vector
from tests.workers.identities import certified
from workers.server.main import serve
from workers.trainer.loop import train
from workers.workloads.local import Local


class Plane(AbstractContextManager["Plane"]):
    """One job, from its submission on."""

    def __init__(
        self,
        spec: JobSpec,
        *,
        emulate: Mapping[int, Emulation] | None = None,
        checkpoint_dirs: Mapping[int, Path] | None = None,
        number: int = 1,
        encrypts: bool = False,
    ) -> None:
        check(spec.synchronization)
        self.number, self.encrypts = number, encrypts
        self.start_folder = f"job-{spec.start_from.job}" if spec.start_from is not None else ""
        self.spec, self.emulate = spec, emulate or {}
        self.checkpoint_dirs = checkpoint_dirs or {}
        self.engine = Engine(job=number, resolve=resolve)
        self.commands: list[AnyCommand] = []
        self.refused: list[str] = []
        self.broken: BaseException | None = None
        self.processes: dict[tuple[str, int], Process] = {}
        self.models: list[Vector] = []
        self.changed = threading.Condition()
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._seconds = time.monotonic()
        self._last_ms = 0
        self._thread = threading.Thread(target=self._handle_all, daemon=True)
        self._goes_on = threading.Event()
        self._goes_on.set()

    def __enter__(self) -> "Plane":
        self._thread.start()
        self.tell(JobSubmitted(spec=self.spec))
        workers = [Assignment(role="worker", index=i, agent=1, slot=i) for i in range(self.spec.workers)]
        servers = [Assignment(role="server", index=i, agent=1, slot=i) for i in range(self.spec.servers)]
        self.tell(SlotsAssigned(assignments=workers + servers))
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.processes.values()]:
            process.link.stop()
        for process in [*self.processes.values()]:
            process.thread.join(DEADLINE_S)
        self._events.put(None)
        self._thread.join(DEADLINE_S)

    def stand_still(self) -> None:
        """No event is handled any more, as if the control plane was gone."""
        self._goes_on.clear()

    def go_on(self) -> None:
        """Handle what has been told meanwhile, and what follows."""
        self._goes_on.set()

    def tell(self, event: Event) -> None:
        """Append an event to the log."""
        self._events.put(event)

    def until(self, condition: Callable[[], bool], what: str = "the condition") -> "Plane":
        """Wait until it holds after some event."""
        with self.changed:
            found = self.changed.wait_for(lambda: self.broken or self.failed or condition(), DEADLINE_S)
            assert found, f"{what}: never"
        if self.broken is not None:
            raise self.broken
        assert not self.failed, self.failed
        return self

    def run(self) -> "Plane":
        """Wait for the job's success."""
        return self.until(lambda: self.state is JobState.SUCCEEDED, "success")

    @property
    def failed(self) -> str:
        """Why the job ended other than well, "" if it did not."""
        moves = self.gave(MoveJob)
        return moves[-1].reason if moves and moves[-1].state in JOB_OVER - {JobState.SUCCEEDED} else ""

    @property
    def state(self) -> JobState:
        moves = self.gave(MoveJob)
        return moves[-1].state if moves else JobState.SUBMITTED

    def gave(self, kind: type[Any]) -> list[Any]:
        """The commands of that kind so far."""
        return [command for command in self.commands if isinstance(command, kind)]

    def reports(self) -> list[tuple[int, IterationReport]]:
        """(rank, report) of all workers."""
        return [(rank, report) for rank in range(self.spec.workers) for report in self.said(rank, IterationReport)]

    def said(self, rank: int, kind: type[Any]) -> list[Any]:
        """What a worker said of that kind."""
        process = self.processes.get(("worker", rank))
        return [] if process is None else process.link.heard(kind)

    def evaluations(self) -> list[Evaluation]:
        return [score for rank in range(self.spec.workers) for score in self.said(rank, Evaluation)]

    def server_reports(self) -> list[ServerReport]:
        return [r for i in range(self.spec.servers) for r in self.processes["server", i].link.heard(ServerReport)]

    def _handle_all(self) -> None:
        try:
            self._handle_each()
        except BaseException as error:
            with self.changed:
                self.broken = error
                self.changed.notify_all()
            raise

    def _handle_each(self) -> None:
        while True:
            try:
                event = self._events.get(timeout=self._wait_s())
            except queue.Empty:
                event = TimePassed(seen=self._seen())
            if event is None:
                return
            self._goes_on.wait()
            self._handle(event)

    def _handle(self, event: Event) -> None:
        now_ms = max(self._last_ms + 1, int((time.monotonic() - self._seconds) * 1000))
        self._last_ms = now_ms
        try:
            given = self.engine.handle(Entry(id=f"{now_ms}-0", event=event))
            self.engine.validate()
        except EventRefused as refused:
            self.refused.append(str(refused))
            given = []
        for command in given:
            self._carry_out(command)
        with self.changed:
            self.commands += given
            self.changed.notify_all()

    def _wait_s(self) -> float | None:
        due_ms = self.engine.deadline_ms
        return None if due_ms is None else max(0.0, due_ms / 1000 - (time.monotonic() - self._seconds))

    def _seen(self) -> dict[str, int]:
        """Everyone whose thread lives gave a sign of life just now."""
        now_ms = int((time.monotonic() - self._seconds) * 1000)
        alive = [p.order for p in self.processes.values() if p.thread.is_alive()]
        return {f"{order.role}:{order.index}:{order.instance}": now_ms for order in alive}

    def _carry_out(self, command: AnyCommand) -> None:
        match command:
            case StartProcess():
                self._start(command)
            case IssueOrders():
                self.processes["worker", command.rank].link.give(command.orders)
            case IssueServerOrders():
                self.processes["server", command.index].link.give(self._server_orders(command))
            case IssuePlacement():
                self.processes["worker", command.rank].link.place(self._placement(command))
            case RequestSlot():
                self.tell(self.slot_for(command))
            case StopProcess():
                self.processes[command.role, command.index].link.stop()
            case RejectMessage():
                self.refused.append(command.reason)

    def _start(self, command: StartProcess) -> None:
        role, index, instance = command.role, command.index, command.instance
        order = ProcessOrder(
            job=self.number,
            role=role,
            index=index,
            instance=instance,
            slot=command.slot,
            spec=self.spec,
            emulate=self.emulate.get(index) if role == "worker" else None,
            checkpoints=CheckpointFolders(own=f"job-{self.number}", start=self.start_folder),
            **certified(role, index, instance, listens=self.spec.asks_peers or None),
        )
        link: Any = _telling(MemoryWorkerLink if role == "worker" else MemoryServerLink)(
            lambda message: self.tell(_heard(order, message))
        )

        def run() -> None:
            folder = self.checkpoint_dirs.get(index)
            local = Local(checkpoint_dir=folder, encrypts=self.encrypts)
            if role == "worker":
                train(order, link, self._save, local)
            else:
                serve(order, link, host="127.0.0.1", report_s=0.05, local=local, checkpoint_dir=folder)

        def live() -> None:
            try:
                run()
                self.tell(ProcessDied(role=role, index=index, instance=instance, status=0))
            except BaseException as error:
                detail = f"{type(error).__name__}: {error}"
                self.tell(ProcessDied(role=role, index=index, instance=instance, status=1, detail=detail))
                raise

        link.rank = index
        self.processes[role, index] = Process(order, link, live)

    def _save(self, model: Mapping[str, Vector]) -> None:
        self.models.append(np.concatenate([array.ravel() for array in model.values()]))

    def slot_for(self, command: RequestSlot) -> Event:
        """The answer to a request for a slot: there always is one, unless a test has it otherwise."""
        assignment = Assignment(role=command.role, index=command.index, agent=1, slot=command.index)
        return SlotsAssigned(assignments=[assignment])

    def _server_orders(self, command: IssueServerOrders) -> ServerOrders:
        addresses = []
        for index, (instance, host, port) in command.receivers.items():
            receiver = bytes.fromhex(self.processes["server", index].order.key)
            key = keys.peer_key(receiver, command.index, command.instance)
            addresses.append(ServerAddress(index=index, instance=instance, host=host, port=port, key=key))
        return msgspec.structs.replace(command.orders, receivers=addresses)

    def _met(self, peer: PeerAddress, reader: IssuePlacement) -> PeerAddress:
        if not peer.instance:
            return peer
        key = bytes.fromhex(self.processes["worker", peer.rank].order.key)
        return msgspec.structs.replace(peer, key=keys.data_key(key, reader.rank, reader.instance))

    def _placement(self, command: IssuePlacement) -> Placement:
        addresses = []
        for index, (instance, host, port) in command.servers.items():
            server = bytes.fromhex(self.processes["server", index].order.key)
            key = keys.data_key(server, command.rank, command.instance)
            addresses.append(ServerAddress(index=index, instance=instance, host=host, port=port, key=key))
        return Placement(
            incarnation=command.incarnation,
            version=command.version,
            blocks=command.blocks,
            servers=addresses,
            generation=command.generation,
            peers=[self._met(peer, command) for peer in command.peers],
            refills=command.refills,
            again=command.again,
        )


def _telling(kind: Any) -> Any:
    """The link of that kind, telling what is said in the order of its numbers."""

    class Telling(kind):  # type: ignore[misc]
        def __init__(self, tell: Callable[[Any], None]) -> None:
            super().__init__()
            self._tell = tell

        def say(self, build: Callable[[int], Any]) -> None:
            with self.changed:
                message = build(len(self.said) + 1)
                self.said.append(msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message)))
                self._tell(message)
                self.changed.notify_all()

    return Telling


def _heard(order: ProcessOrder, message: Any) -> Event:
    if order.role == "worker":
        return WorkerMessageReceived(rank=order.index, instance=order.instance, message=message)
    return ServerMessageReceived(index=order.index, instance=order.instance, message=message)

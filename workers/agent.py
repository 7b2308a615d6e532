"""The agent of one machine: offers its slots, runs the processes that orders name, and reports their state.

One loop on the main thread handles all events from one queue: orders from the socket's thread, starts and exits from
the spawner's thread, signals. During an outage of the control plane running processes continue.
"""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import structlog
from msgspec import structs

from controlplane.protocol import RELEASE
from controlplane.protocol.addresses import ControlPlane
from controlplane.protocol.base import Value
from controlplane.protocol.codec import AgentReply, to_agent
from controlplane.protocol.keys import secret_digest
from controlplane.protocol.machine_tests import (
    ListenOrder,
    MachineTested,
    MachineTestOrder,
    PreflightAnswer,
    PreflightOrder,
)
from controlplane.protocol.measurements import OF_MACHINES, fitting
from controlplane.protocol.messages import (
    AgentHeartbeat,
    AgentHello,
    AgentMessage,
    CredentialKept,
    ProcessEnded,
    ProcessName,
    ProcessStarted,
    SlotOffer,
)
from controlplane.protocol.orders import AgentOrders, CredentialIssued, Rejection
from workers import checkpoint_retention
from workers.backoff import Backoff
from workers.control.outbox import Outbox
from workers.control.socket import MALFORMED, NEVER_ACCEPTED, UNAUTHORISED, ControlSocket, Ending, Handlers, Route
from workers.environment import environment
from workers.log_buffer import LogBuffer
from workers.preflight.running import Preflight
from workers.rates import Rates
from workers.relay.relay import Relay
from workers.resources import Machine
from workers.setup import Setup
from workers.spawner.client import Kit, Lost, Spawner
from workers.spawner.messages import Ended, Started, Warm, Wrote
from workers.state import ALIVE, CONNECTED, AgentState, Credential, StateError
from workers.table import ProcessTable

GRACE_S = 10.0
"""Time between the request to end a process and SIGKILL."""
FAREWELL_S = 1.0
MARK_S = 1.0
"""How often the loop records that it runs, for ``health --live``."""

KILLED = -int(signal.SIGKILL)
log = structlog.get_logger("agent")


class AgentError(RuntimeError):
    """The machine cannot run processes; the message has the reason."""


class Offer(Value, frozen=True, kw_only=True):
    """A machine's offer: its slots and its address."""

    name: str
    slots: list[SlotOffer]
    server_slots: int
    labels: dict[str, str]
    setup: Setup
    """Settings passed to its processes."""
    relays: bool = False
    """Whether its processes connect through the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """Orders arrived, on connection number ``connection``."""

    orders: AgentOrders


@dataclass(frozen=True, slots=True)
class PreflightOrdered:
    """A test of this machine, or of a link to it, was ordered."""

    order: PreflightOrder


class Opened:
    """A connection was established."""


@dataclass(frozen=True, slots=True)
class Quit:
    """A signal requests the agent to end."""

    signal: int


Happening = Ordered | PreflightOrdered | Opened | Quit | Ending | Warm | Started | Wrote | Ended | Lost


class Agent:
    """One machine's agent. ``run`` returns when it stops; create and run it on the main thread."""

    def __init__(
        self,
        plane: ControlPlane,
        credential: Credential,
        offer: Offer,
        state: AgentState,
        *,
        announce: Callable[[], None] = lambda: None,
        kit: Kit | None = None,
        json_logs: bool = False,
        backoff: Backoff | None = None,
        grace_s: float = GRACE_S,
    ) -> None:
        self._offer, self._state, self._announce, self._grace_s = offer, state, announce, grace_s
        self._credential = credential
        self._machine, self._rates = Machine(), Rates()
        self._inbox: SimpleQueue[Happening] = SimpleQueue()
        self._table = ProcessTable(state.read_started())
        setup = structs.replace(offer.setup, threads=self._threads_each())
        self._kit = kit or Kit(setup=setup, json_logs=json_logs)
        self._spawner: Spawner | None = None
        self._outbox: Outbox[AgentMessage] = Outbox(renumber=True)
        self._preflight = Preflight(setup, self._say_of_test)
        self._log_buffer = LogBuffer()
        self._outbox.say(self._hello)
        handlers: Handlers[AgentReply] = Handlers(
            receive=self._receive, opened=lambda: self._inbox.put(Opened()), ended=self._inbox.put
        )
        self._relay = Relay(plane, _proof(credential), state.folder) if offer.relays else None
        route = Route(plane=plane, path="/ws/agent", headers=_proof(credential))
        self._socket: ControlSocket[AgentMessage, AgentReply] = ControlSocket(
            route,
            self._outbox,
            to_agent,
            handlers,
            heartbeat=self._heartbeat,
            extras=self._log_buffer.take,
            backoff=backoff,
        )
        self._announced = self._warmed = self._was_answered = False
        self._quitting = False
        self._ending: Ending | None = None

    def run(self) -> Ending | None:
        """Run until a signal arrives (returns None) or the control plane rejects this agent (returns the reason)."""
        self._listen_to_signals()
        if self._relay is not None:
            self._relay.start()
        self._spawn()
        self._socket.start()
        checkpoint_retention.start(self._offer.setup)
        try:
            self._loop()
        finally:
            self._preflight.close()
            if self._spawner is not None:
                self._spawner.close()
            if self._relay is not None:
                self._relay.close()
            if self._socket.connected:
                self._outbox.wait(lambda box: box.all_sent or not self._socket.connected, FAREWELL_S)
            self._socket.close()
        return self._ending

    def _loop(self) -> None:
        """Handle events until the agent quits and its processes have ended. Marks that it runs, connected or not."""
        mark_s = time.monotonic()
        while not (self._quitting and not self._table.running):
            if (now_s := time.monotonic()) >= mark_s:
                self._state.mark(ALIVE)
                mark_s = now_s + MARK_S
            try:
                happening = self._inbox.get(timeout=MARK_S)
            except Empty:
                continue
            self._handle(happening)

    def _handle(self, happening: Happening) -> None:
        match happening:
            case Ordered():
                self._obey(happening.orders)
            case PreflightOrdered():
                if not self._quitting:
                    self._preflight.begin(happening.order)
            case Opened():
                self._table.reconnected()
            case Warm():
                self._warmed = True
            case Started():
                self._say_started(happening)
            case Wrote():
                self._log_buffer.add(happening.process, happening.lines)
            case Ended():
                self._say_ended(happening.process, happening.status, happening.tail)
            case Lost():
                self._lost_spawner(happening)
            case Ending() if self._ending is None:  # the first one has the reason; the end of the connection follows
                log.error(f"the control plane ended this agent: {happening.reason}")
                self._ending = happening
                self._quit()
            case Quit():
                log.info(f"ending on {signal.Signals(happening.signal).name}; running: {len(self._table.running)}")
                self._quit(impatient=self._quitting)

    def _obey(self, orders: AgentOrders) -> None:
        if not self._announced:
            self._announced = True
            self._announce()
        if self._quitting:
            return
        before = set(self._table.started)
        plan = self._table.obey(orders)
        if self._table.started != before:
            self._store_started()
        for name in plan.lost:
            self._say_ended(name, KILLED, "it ended before its agent restarted")
        for name in plan.stop:
            self._stop(name, self._grace_s)
        for order in plan.start:
            log.info(f"starting {order.role} {order.index} of job {order.job}", instance=order.instance)
            if self._spawner is not None:
                self._spawner.start(order)

    def _store_started(self) -> None:
        """A full disk must not end running processes."""
        try:
            self._state.store_started(self._table.started)
        except StateError as error:
            log.error(f"an agent restarted now would begin its processes again: {error}")

    def _stop(self, process: ProcessName, grace_s: float) -> None:
        log.info(f"ending {process.role} {process.index} of job {process.job}", instance=process.instance)
        if self._spawner is not None:
            self._spawner.stop(process, grace_s=grace_s)

    def _quit(self, *, impatient: bool = False) -> None:
        """Request all processes to end; on a second call, stop waiting for them."""
        self._quitting = True
        if impatient:
            for name in self._table.running:
                self._stop(name, 0.0)
        else:
            for name in self._table.stop_all():
                self._stop(name, self._grace_s)

    def _say_started(self, started: Started) -> None:
        self._outbox.say(lambda number: ProcessStarted(number=number, process=started.process, pid=started.pid))

    def _say_ended(self, process: ProcessName, status: int, tail: str) -> None:
        self._table.ended(process)
        starved = status == KILLED and self._machine.ran_out_of_memory()
        why = ": this machine had run out of memory" if starved else ""
        log.info(f"{process.role} {process.index} of job {process.job} ended with status {status}{why}")
        self._outbox.say(
            lambda number: ProcessEnded(number=number, process=process, status=status, tail=tail, out_of_memory=starved)
        )

    def _spawn(self) -> None:
        relay = None if self._relay is None else self._relay.path
        self._spawner = Spawner(self._kit, self._inbox.put, relay=relay)

    def _lost_spawner(self, lost: Lost) -> None:
        for name in self._table.running:
            self._say_ended(name, KILLED, f"the spawner of its agent ended with status {lost.status}")
        if self._quitting:
            return
        if not self._warmed:
            raise AgentError("the spawner could not import what workers need; see its error above")
        log.error(f"the spawner ended with status {lost.status}; starting another")
        self._spawn()

    def _receive(self, reply: AgentReply) -> None:
        """Called on the socket's thread."""
        if isinstance(reply, Rejection) and reply.code == "unauthorised":
            self._inbox.put(Ending(code=UNAUTHORISED, reason=reply.detail or reply.code))
        elif isinstance(reply, Rejection):
            log.warning(f"the control plane refused message {reply.number}: {reply.code}: {reply.detail}")
            if reply.code == "out-of-order":
                self._socket.resend()
            elif (
                reply.code in NEVER_ACCEPTED and not self._was_answered
            ):  # the first message: it would be rejected again
                reason = f"it does not take what this machine offers: {reply.detail}"
                self._inbox.put(Ending(code=MALFORMED, reason=reason))
        elif isinstance(reply, CredentialIssued):
            self._take_credential(reply.secret)
        elif isinstance(reply, ListenOrder | MachineTestOrder):
            self._inbox.put(PreflightOrdered(reply))
        else:
            self._was_answered = True
            self._outbox.acknowledge(reply.durable)
            self._inbox.put(Ordered(orders=reply))

    def _take_credential(self, secret: str) -> None:
        """Called on the socket's thread, which reconnects: so it uses the credential that it reported as stored."""
        credential, failure = structs.replace(self._credential, secret=secret), ""
        try:
            self._state.replace_credential(credential)
        except StateError as error:
            failure = str(error)
            log.error(f"a new credential could not be kept, so the old one stays: {failure}")
        else:
            self._credential = credential
            self._socket.prove_with(_proof(credential))
            if self._relay is not None:
                self._relay.prove_with(_proof(credential))
            log.info("a new credential is kept")
        digest = secret_digest(secret)
        self._outbox.say(lambda number: CredentialKept(number=number, digest=digest, failure=failure))

    def _say_of_test(self, message: PreflightAnswer) -> None:
        """Called on a thread of the test."""
        self._outbox.say(lambda number: structs.replace(message, number=number))

    def _hello(self, number: int) -> AgentHello:
        """Called on the socket's thread. Lists also processes whose exit is about to be reported, so that they do not
        count as vanished, and tests whose result is about to be reported.
        """
        offer, running = self._offer, self._table.running
        testing, pending = self._preflight.testing, self._outbox.pending
        pending_ends = [each.process for each in pending if isinstance(each, ProcessEnded)]
        tested = [each.test for each in pending if isinstance(each, MachineTested)]
        return AgentHello(
            number=number,
            name=offer.name,
            version=RELEASE,
            host=offer.setup.reached_at,
            slots=offer.slots,
            server_slots=offer.server_slots,
            labels=offer.labels,
            cpu_count=self._machine.cpu_count,
            memory_bytes=self._machine.memory_bytes,
            environment=environment(", ".join(dict.fromkeys(offer.setup.devices)), network=offer.setup.protection),
            running=running + [process for process in pending_ends if process not in running],
            rotates=True,
            tests=True,
            testing=testing + [test for test in tested if test not in testing],
            scripts=offer.setup.scripts_dir is not None,
        )

    def _heartbeat(self) -> AgentHeartbeat:
        self._state.mark(CONNECTED)
        load = self._machine.load()
        measured = {"cpu": load.cpu, "memory": load.memory, **self._rates.numbers()}
        return AgentHeartbeat(**fitting(OF_MACHINES, measured))

    def _threads_each(self) -> int:
        """CPUs divided evenly among the workers, so that they do not compete for them."""
        return max(1, self._machine.cpu_count // max(1, len(self._offer.slots)))

    def _listen_to_signals(self) -> None:
        """Handle signals; a handler may put into a SimpleQueue at any point."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda received, _: self._inbox.put(Quit(received)))


def _proof(credential: Credential) -> dict[str, str]:
    """The header with the agent's credential. Never print it."""
    return {"Authorization": f"Bearer {credential.secret}"}

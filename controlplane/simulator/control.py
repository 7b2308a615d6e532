"""The driver of the engine in virtual time: appends events to the log, passes them to the engine, and executes
commands.

The engine is the live one and sees exactly the events that a live job's log would have. Results include the delays of
the control plane itself: of a message to the log, of a decision (one at a time, as with the lease), and of the answer.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from controlplane.core.choices import Resolve
from controlplane.core.commands import (
    AnyCommand,
    IssueOrders,
    IssuePlacement,
    IssueServerOrders,
    MoveJob,
    MoveProcess,
    PlayAlternatives,
    RequestSlot,
    RollBack,
    StartProcess,
    StopProcess,
    TrainPredictor,
)
from controlplane.core.context import EventRefused
from controlplane.core.engine import Engine
from controlplane.core.events import AlternativesPlayed, Entry, Event, TimePassed
from controlplane.core.iterations import Ledger
from controlplane.core.sharing import fit
from controlplane.core.states import JOB_OVER, JobState
from controlplane.protocol.base import Seconds
from controlplane.protocol.orders import Orders, ServerOrders
from controlplane.protocol.spec import Part
from controlplane.simulator.kernel import Kernel

BEGIN_MS: Final = 1_000_000
"""The log's clock at virtual time 0: an arbitrary constant."""


class ControlPlane(Part, frozen=True, kw_only=True):
    """The control plane's delays."""

    latency_s: Seconds = 0.0
    """Delay of a message, each way."""
    decision_s: Seconds = 0.0
    """Time to handle one event; events are handled one after another."""
    fit_s: Seconds = 1.0
    """Time to fit a predictor; this does not delay workers."""
    play_s: Seconds = 5.0
    """Time to simulate an autopilot's alternatives; this does not delay workers."""


class Job(Protocol):
    """The processes that the engine's commands refer to."""

    def start_process(self, command: StartProcess) -> None:
        """Run a process on a machine."""

    def stop_process(self, command: StopProcess) -> None:
        """End a process on a machine."""

    def move_process(self, command: MoveProcess) -> None:
        """A process is in a new state."""

    def request_slot(self, command: RequestSlot) -> None:
        """A slot for one more process is requested."""

    def roll_back(self, command: RollBack) -> None:
        """All parameters are lost except those of a checkpoint."""

    def receive_orders(self, rank: int, instance: str, orders: Orders) -> None:
        """A worker gets its orders."""

    def receive_server_orders(self, index: int, orders: ServerOrders) -> None:
        """A server gets its orders."""

    def receive_placement(self, command: IssuePlacement) -> None:
        """A worker gets the placement."""

    def heartbeats(self) -> dict[str, int]:
        """Heartbeats as in ``TimePassed``."""

    def nothing_came_of_it(self, quiet_s: float) -> None:
        """A deadline passed without a command from the engine, which has been quiet for ``quiet_s``."""


class Player(Protocol):
    """Simulates the alternatives of a job's autopilot from its log."""

    def add(self, entry: Entry) -> None:
        """One entry of the log."""

    def answer(self, job: int, command: PlayAlternatives) -> AlternativesPlayed:
        """The result that the command requests."""


class Recorder(Protocol):
    """Receives the log and keeps what it needs."""

    def add(self, entry: Entry, commands: list[AnyCommand]) -> None:
        """Add an entry and the engine's commands for it."""


class Recording:
    """Records the log: all of it, or only the digest of its bytes."""

    def __init__(self, *, keep: bool) -> None:
        self.entries: list[Entry] = []
        self.commands: list[AnyCommand] = []
        self._keep = keep
        self._encoder = msgspec.msgpack.Encoder()
        self._digest = hashlib.sha256()

    def add(self, entry: Entry, commands: list[AnyCommand]) -> None:
        """Add an entry and the engine's commands for it."""
        self._digest.update(self._encoder.encode(entry))
        for command in commands:
            self._digest.update(self._encoder.encode(command))
        if self._keep:
            self.entries.append(entry)
            self.commands += commands

    @property
    def digest(self) -> str:
        """Of all entries and commands so far, in hexadecimal."""
        return self._digest.hexdigest()


class Driver:
    """One job's log and engine. ``recording`` None: nothing is kept, which is faster; ``player`` None: an autopilot
    gets no results.
    """

    def __init__(
        self,
        kernel: Kernel,
        resolve: Resolve,
        plane: ControlPlane,
        *,
        number: int = 1,
        recording: Recorder | None,
        player: Player | None = None,
    ) -> None:
        self._kernel, self._resolve, self._recording = kernel, resolve, recording
        self._latency_s, self._decision_s, self._fit_s = plane.latency_s, plane.decision_s, plane.fit_s
        self._player, self._play_s, self._number = player, plane.play_s, number
        self.engine = Engine(job=number, resolve=resolve)
        self.job: Job | None = None
        self.state = JobState.SUBMITTED
        self.over = False
        """Whether the job has ended."""
        self.why = ""
        """The reason of the last change of state."""
        self.entries = 0
        self._busy_s = 0.0
        self.refused: list[str] = []
        self._last_ms, self._within_ms = -1, 0
        self._free_s = 0.0
        self._tick_ms: int | None = None
        self._ledger: Ledger | None = None
        self._asks_for_ledger = True
        """Whether the engine has handled an entry since the ledger was requested."""
        self._effects: dict[type[AnyCommand], Callable[..., None]] = {
            StartProcess: self._of_processes("start_process"),
            StopProcess: self._of_processes("stop_process"),
            MoveProcess: self._of_processes("move_process"),
            RequestSlot: self._of_processes("request_slot"),
            RollBack: self._of_processes("roll_back"),
            IssueServerOrders: self._issue_server_orders,
            IssuePlacement: self._issue_placement,
            MoveJob: self._move_job,
            TrainPredictor: self._train,
            PlayAlternatives: self._play,
        }

    def append_event(self, event: Event) -> None:
        """Send an event on its way to the log."""
        if self._latency_s > 0.0:
            self._kernel.after(self._latency_s, self.append, event)
        else:
            self.append(event)

    def append(self, event: Event) -> None:
        """Append the event to the log; the engine's commands take effect after their delay."""
        if not self.over:
            self._busy_s = self._kernel.now
            self._append(event)

    @property
    def ledger(self) -> Ledger | None:
        """The ledger in which reports without consequences may be recorded until the next entry; None if there is none
        now.
        """
        if self._asks_for_ledger:
            self._asks_for_ledger = False
            self._ledger = self.engine.open_ledger() if self._latency_s == 0.0 and not self.over else None
        return self._ledger

    @property
    def now_ms(self) -> int:
        """The log's clock."""
        return BEGIN_MS + int(self._kernel.now * 1000)

    def ms_of(self, times_s: NDArray[np.float64]) -> list[int]:
        """The log's clock then."""
        ms: list[int] = (BEGIN_MS + (times_s * 1000).astype(np.int64)).tolist()
        return ms

    def log_noted(self, event: Callable[[], Event]) -> None:
        """Log a report that was recorded in the ledger; ``event`` creates the event."""
        now_s = self._busy_s = self._kernel.now
        at_ms = self.now_ms
        if at_ms == self._last_ms:
            self._within_ms += 1
        else:
            self._last_ms, self._within_ms = at_ms, 0
        self.entries += 1
        self._free_s = (now_s if now_s > self._free_s else self._free_s) + self._decision_s
        if self._recording is not None:
            self._recording.add(Entry(id=f"{at_ms}-{self._within_ms}", event=event()), [])

    def log_all_noted(self, times_s: list[float], ms: list[int], event: Callable[[int], Event]) -> None:
        """The same for several reports in order; ``event`` is called with the index of each."""
        if self._recording is not None or self._decision_s:
            for place, time_s in enumerate(times_s):
                self._kernel.now = time_s
                self.log_noted(partial(event, place))
            return
        self._busy_s = times_s[-1]
        self._free_s = max(self._free_s, times_s[-1])
        self.entries += len(ms)
        of_last = len(ms) - bisect_left(ms, ms[-1])
        goes_on = of_last == len(ms) and self._last_ms == ms[-1]
        self._within_ms = of_last - 1 + (self._within_ms + 1 if goes_on else 0)
        self._last_ms = ms[-1]

    def take(self, entry: Entry) -> list[AnyCommand]:
        """Hand one entry to the engine, as every driver does; refused events are only logged."""
        self._ledger, self._asks_for_ledger = None, True
        try:
            commands = self.engine.handle(entry)
        except EventRefused as refusal:
            self.refused.append(str(refusal))
            commands = []
        if self._recording is not None:
            self._recording.add(entry, commands)
        if self._player is not None:
            self._player.add(entry)
        return commands

    def _append(self, event: Event) -> list[AnyCommand]:
        now_s = self._kernel.now
        at_ms = BEGIN_MS + int(now_s * 1000)
        if at_ms == self._last_ms:
            self._within_ms += 1
        else:
            self._last_ms, self._within_ms = at_ms, 0
        self.entries += 1
        commands = self.take(Entry(id=f"{at_ms}-{self._within_ms}", event=event))
        self._free_s = (now_s if now_s > self._free_s else self._free_s) + self._decision_s
        issued: list[IssueOrders] = []
        for command in commands:
            if type(command) is IssueOrders:
                issued.append(command)
                continue
            effect = self._effects.get(type(command))
            if effect is not None:
                self._issue_orders(issued)
                issued = []
                effect(command)
        self._issue_orders(issued)
        if self.engine.deadline_ms != self._tick_ms:
            self._plan_tick()
        return commands

    def _plan_tick(self) -> None:
        due_ms = self.engine.deadline_ms
        if due_ms is None or (self._tick_ms is not None and self._tick_ms <= due_ms):
            return
        self._tick_ms = due_ms
        # Slightly later, so that rounding does not give the previous millisecond of the log's clock.
        self._kernel.at(max(self._kernel.now, (due_ms - BEGIN_MS) / 1000 + 1e-9), self._tick, due_ms)

    def _tick(self, due_ms: int) -> None:
        if due_ms != self._tick_ms or self.over:
            return
        self._tick_ms = None
        assert self.job is not None
        if self.engine.needs_heartbeats(due_ms):
            passed = TimePassed(seen=self.job.heartbeats())
        else:
            passed = TimePassed(is_look=True)
        if self._append(passed):
            self._busy_s = self._kernel.now
        else:
            self.job.nothing_came_of_it(self._kernel.now - self._busy_s)

    # -- what commands do

    def _of_processes(self, name: str) -> Callable[[AnyCommand], None]:
        """Actions on processes, executed immediately; none without a job."""

        def act(command: AnyCommand) -> None:
            if self.job is not None:
                getattr(self.job, name)(command)

        return act

    def _issue_orders(self, commands: list[IssueOrders]) -> None:
        """Orders that were issued in sequence arrive in sequence: one event delivers all of them."""
        if commands:
            self._deliver(self._arrive, commands)

    def _arrive(self, commands: list[IssueOrders]) -> None:
        kernel, job = self._kernel, self.job
        assert job is not None
        kernel.happened -= 1  # each arrival is counted by itself
        for command in commands:
            if kernel.halted:
                return
            kernel.happened += 1
            job.receive_orders(command.rank, command.instance, command.orders)

    def _issue_server_orders(self, command: IssueServerOrders) -> None:
        assert self.job is not None
        self._deliver(self.job.receive_server_orders, command.index, command.orders)

    def _issue_placement(self, command: IssuePlacement) -> None:
        assert self.job is not None
        self._deliver(self.job.receive_placement, command)

    def _deliver(self, callback: Callable[..., None], *arguments: object) -> None:
        self._kernel.at(self._free_s + self._latency_s, callback, *arguments)

    def _move_job(self, command: MoveJob) -> None:
        self.state, self.why = command.state, command.reason
        if command.state in JOB_OVER:
            self.over = True
            self._kernel.halt()

    def _train(self, command: TrainPredictor) -> None:
        self._kernel.after(self._fit_s, self.append, fit(command, self._resolve))

    def _play(self, command: PlayAlternatives) -> None:
        if self._player is not None:
            self._kernel.after(self._play_s, self.append, self._player.answer(self._number, command))

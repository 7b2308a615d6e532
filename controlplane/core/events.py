"""Events: the entries of a job's log, in the past tense. The log is the source of truth; all other data is derived from
it.
"""

import re
from typing import Annotated, Final

from msgspec import Meta

from controlplane.core.choices import PlayedAlternative
from controlplane.core.choices import PredictorPromoted as PredictorPromoted
from controlplane.core.choices import PredictorTrained as PredictorTrained
from controlplane.protocol.autopilot import Mode
from controlplane.protocol.base import Count, Count32, Finite, Host, Name, Positive32, Status, Text, Value, Word
from controlplane.protocol.energy import Power
from controlplane.protocol.messages import (
    BlocksFilled,
    BlocksHanded,
    CheckpointSaved,
    Computed,
    CopiesHeld,
    Evaluation,
    FolderApart,
    IterationReport,
    MicroBatch,
    ProgressReport,
    Quiesced,
    RankHello,
    RestoreFailed,
    ServerHello,
    ServerReport,
    Stalled,
    WorkerFinished,
    WorkerHello,
)
from controlplane.protocol.orders import Orders, Role
from controlplane.protocol.spec import Choice, Emulation, JobSpec

NumberedWorkerMessage = (
    WorkerHello
    | IterationReport
    | ProgressReport
    | Computed
    | MicroBatch
    | Quiesced
    | CopiesHeld
    | Evaluation
    | WorkerFinished
    | CheckpointSaved
    | FolderApart
    | RestoreFailed
    | RankHello
    | Stalled
)
NumberedServerMessage = (
    ServerHello | ServerReport | BlocksHanded | BlocksFilled | CheckpointSaved | FolderApart | RestoreFailed
)


class JobSubmitted(Value, frozen=True, kw_only=True, tag="job-submitted"):
    """The first event of every log."""

    spec: JobSpec
    salt: Annotated[bytes, Meta(max_length=64)] = b""
    """A random secret from which names of instances are derived, so that they cannot be guessed. Empty in simulations
    and in older logs.
    """


_PATH_OF_ERROR: Final = re.compile(r"^(?:\w+\.)+(?=\w+: )")
"""Finds the module of an error's class in the last line of a traceback."""


class Assignment(Value, frozen=True, kw_only=True):
    """One process of the job and the slot of the agent that should run it."""

    role: Role
    index: Count32
    agent: Count
    slot: Count32
    emulate: Emulation | None = None
    power: Power | None = None
    """A worker's power from the machine's labels."""
    host: Host = ""
    """A worker's machine, as others reach it."""


class SlotsAssigned(Value, frozen=True, kw_only=True, tag="slots-assigned"):
    """The scheduler reserved slots: at the start one for each worker and server, later for restarted ones."""

    assignments: list[Assignment]


class SlotRefused(Value, frozen=True, kw_only=True, tag="slot-refused"):
    """There is no slot for a process that a running job requested."""

    role: Role
    index: Count32
    reason: Text


class WorkerMessageReceived(Value, frozen=True, kw_only=True, tag="worker-heard"):
    """A numbered message of an authenticated worker arrived."""

    rank: Count32
    instance: Name
    message: NumberedWorkerMessage


class ServerMessageReceived(Value, frozen=True, kw_only=True, tag="server-heard"):
    """A numbered message of an authenticated server arrived."""

    index: Count32
    instance: Name
    message: NumberedServerMessage


class ConnectionLost(Value, frozen=True, kw_only=True, tag="connection-lost"):
    """The control socket of a process closed: it is unreachable, but not lost yet."""

    role: Role
    index: Count32
    instance: Name


class ProcessDied(Value, frozen=True, kw_only=True, tag="process-died"):
    """An agent reported that a process ended, or the agent is lost for good."""

    role: Role
    index: Count32
    instance: Name
    status: Status
    detail: Text = ""
    is_agent_lost: bool = False
    """Its agent is unreachable: nothing can be started there."""
    out_of_memory: bool = False
    """It was killed while the kernel killed processes of its machine for lack of memory."""

    @property
    def ended(self) -> str:
        """How it ended, to complete a sentence that begins with its name. The last line of a failed process is the
        reason; that of a process that ended otherwise is not.
        """
        if self.is_agent_lost:
            return f"was lost: {self.detail}" if self.detail else "was lost with its machine"
        if self.status == 0:
            return "ended by itself"
        if self.out_of_memory:
            return f"was ended by signal {-self.status}: its machine had run out of memory"
        if self.status < 0:
            return f"was ended by signal {-self.status}"
        last_line = _PATH_OF_ERROR.sub("", self.detail.strip().rpartition("\n")[2])
        return f"ended with status {self.status}" + (f" ({last_line})" if last_line else "")


LAUNCHER: Final = "launcher:0:lease"
"""A launcher's name in ``TimePassed.seen``, as ``role:index:instance``."""


class TimePassed(Value, frozen=True, kw_only=True, tag="time-passed"):
    """A deadline of the engine has passed.

    ``seen`` holds, per process as ``role:index:instance``, when it last sent a heartbeat, in milliseconds of the log's
    clock.
    """

    seen: dict[Word, Count] = {}
    away: list[Count] = []
    """Agents that have sent no heartbeat recently."""
    is_look: bool = False
    """Only waiting workers are evaluated again (``Engine.needs_heartbeats``): heartbeats were not read."""


class ControlPlaneResumed(Value, frozen=True, kw_only=True, tag="control-plane-resumed"):
    """A gateway or coordinator started or resumed: deadlines restart."""

    who: Text


class IncarnationBegan(Value, frozen=True, kw_only=True, tag="incarnation-began"):
    """The log was recovered, or its replay differed from the published commands: new orders replace all earlier ones.

    Entries between ``after`` and this one were not answered in the earlier incarnation.
    """

    incarnation: Positive32
    reason: Text
    after: Word
    sequence: Count = 0
    """The highest number of a command so far; numbers continue after it."""
    forgot: bool = False
    """Whether orders may have been issued that are not recorded: Redis had lost a part of the log."""
    published: dict[Count32, Orders] = {}
    """By rank, the last orders in the command stream; if they differ from a replay's, they stay valid."""


class StopRequested(Value, frozen=True, kw_only=True, tag="stop-requested"):
    """A user requested to end the job."""

    actor: Word
    reason: Text = ""

    @property
    def sentence(self) -> str:
        """For display."""
        return f"stopped by {self.actor}" + (f": {self.reason}" if self.reason else "")


class LauncherEnded(Value, frozen=True, kw_only=True, tag="launcher-ended"):
    """The command that had started an attached job's ranks has ended."""

    actor: Word
    exit_code: Status
    reason: Text = ""


class EngineFailed(Value, frozen=True, kw_only=True, tag="engine-failed"):
    """The commands for ``entry`` could not be executed: an error in the control plane ends the job."""

    entry: Word
    reason: Text


class ChangeRequested(Value, frozen=True, kw_only=True, tag="change-requested"):
    """A user requested other policies: the new choice for each question that changes."""

    actor: Word
    choices: dict[Word, Choice]


class AutopilotRequested(Value, frozen=True, kw_only=True, tag="autopilot-requested"):
    """A user requested that the autopilot switches by itself, or only proposes changes."""

    actor: Word
    mode: Mode


class AlternativesPlayed(Value, frozen=True, kw_only=True, tag="alternatives-played"):
    """The simulation for ``PlayAlternatives`` is done, or was not possible."""

    look: Count32
    error: Finite = 0.0
    """The relative error of the simulation of the current policies, compared with the recorded data."""
    played: Annotated[list[PlayedAlternative], Meta(max_length=100)] = []
    reason: Text = ""
    """Why nothing was simulated."""


class PauseRequested(Value, frozen=True, kw_only=True, tag="pause-requested"):
    """A user requested to stop every worker at its next boundary."""

    actor: Word


class ResumeRequested(Value, frozen=True, kw_only=True, tag="resume-requested"):
    """A user requested to resume the job."""

    actor: Word


class ExclusionRequested(Value, frozen=True, kw_only=True, tag="exclusion-requested"):
    """A user requested to exclude a worker: it gets no shares and its process ends, until it is included again."""

    actor: Word
    rank: Count32


class InclusionRequested(Value, frozen=True, kw_only=True, tag="inclusion-requested"):
    """A user requested to include a worker that was excluded, drained or lost."""

    actor: Word
    rank: Count32


class DrainRequested(Value, frozen=True, kw_only=True, tag="drain-requested"):
    """A user requested to drain a worker or server: it completes its iteration, or hands over its blocks, and ends."""

    actor: Word
    role: Role
    index: Count32


class ServerRequested(Value, frozen=True, kw_only=True, tag="server-requested"):
    """A user requested another server."""

    actor: Word


Event = (
    JobSubmitted
    | SlotsAssigned
    | SlotRefused
    | WorkerMessageReceived
    | ServerMessageReceived
    | ConnectionLost
    | ProcessDied
    | TimePassed
    | ControlPlaneResumed
    | IncarnationBegan
    | StopRequested
    | LauncherEnded
    | EngineFailed
    | PredictorTrained
    | PredictorPromoted
    | ChangeRequested
    | AutopilotRequested
    | AlternativesPlayed
    | PauseRequested
    | ResumeRequested
    | ExclusionRequested
    | InclusionRequested
    | DrainRequested
    | ServerRequested
)

REQUESTS: Final = (
    StopRequested,
    LauncherEnded,
    PredictorPromoted,
    ChangeRequested,
    AutopilotRequested,
    PauseRequested,
    ResumeRequested,
    ExclusionRequested,
    InclusionRequested,
    DrainRequested,
    ServerRequested,
)
"""Requests of a user, who is notified if they are declined."""


class Entry(Value, frozen=True, kw_only=True):
    """An event in its log: ``id`` is the stream id ``milliseconds-sequence``, strictly increasing within a log."""

    id: str
    event: Event

    @property
    def at_ms(self) -> int:
        """When it was appended, in milliseconds of the log's clock."""
        return int(self.id.partition("-")[0])

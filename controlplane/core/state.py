"""What the engine remembers of one job: plain records, and their snapshot.

A snapshot is written whole and carries the version of these records; one of another version is refused, and the
driver rebuilds it from the log.
"""

from typing import Any, Final

import msgspec

from controlplane.core.choices import Observation
from controlplane.core.states import PROCESS_OVER, JobState, ProcessState
from controlplane.protocol.orders import Block, Orders, Range, Role
from controlplane.protocol.spec import Choice, Emulation, JobSpec, Synchronization

SNAPSHOT_VERSION: Final = 2


class SnapshotVersionError(ValueError):
    """A snapshot that this release cannot read; the log can still be replayed."""


class Process(msgspec.Struct, kw_only=True):
    """The current life of one worker or server."""

    role: Role
    index: int
    instance: str
    agent: int
    slot: int
    emulate: Emulation | None
    state: ProcessState
    since_ms: int
    seen_ms: int
    """Its last sign of life."""
    heard: int = 0
    """The last of its message numbers that was taken in."""

    @property
    def title(self) -> str:
        """How people call it: ``w3``, ``s0``."""
        return f"{self.role[0]}{self.index}"

    @property
    def over(self) -> bool:
        """Whether this life has ended."""
        return self.state in PROCESS_OVER


class Worker(Process, kw_only=True):
    """A worker's current life."""

    done: int = -1
    """Its last reported iteration."""
    done_ms: int = 0
    reports: int = 0
    from_iteration: int = 0
    """The first iteration that it counts in."""
    watermark: int = -1
    """May start iterations up to this one."""
    granted: int = -1
    """The highest watermark that it was ever told: it may have gone so far before it heard of a lower one."""
    skip_to: int = 0
    """It owes no iteration before this one."""
    leases: list[Range] = []
    """Asynchronous modes: the samples of the iterations that it has leave for and has not reported."""
    stop_at: int | None = None
    """Asynchronous modes: where this worker ends."""
    pace_s: float = 0.0
    """Asynchronous modes: smoothed length of its iterations."""
    is_held: bool = False
    """It said that it stands, by orders with hold."""
    orders: Orders | None = None


class Server(Process, kw_only=True):
    """A server's current life."""

    host: str = ""
    port: int = 0
    tensor_sizes: list[int] = []


class Job(msgspec.Struct, kw_only=True):
    """Everything that decisions about one job depend on, but for the policies' own states."""

    number: int
    spec: JobSpec | None = None
    synchronization: Synchronization = Synchronization()
    """The choices that hold now: those of the spec, until somebody changes them."""
    state: JobState = JobState.SUBMITTED
    since_ms: int = 0
    workers: dict[int, Worker] = {}
    servers: dict[int, Server] = {}
    lives: dict[str, int] = {}
    """How many instances of each process there have been, by its title."""

    incarnation: int = 0
    generation: int = 0
    sequence: int = 0
    """Of the last orders; rises over the job's whole life."""
    roster: list[int] = []
    first_iteration: int = 0
    """From which the present roster counts."""
    shares: dict[int, int] = {}
    offsets: dict[int, int] = {}
    share_from: int = 0
    origin_iteration: int = 0
    origin_position: int = 0
    completed: int = -1
    """The last iteration that every counting worker has reported."""
    behind: int = 0
    """How many counting workers have not reported the iteration after that one."""
    completed_ms: int = 0
    iteration_s: float = 0.0
    """Smoothed length of an iteration."""
    observed: dict[int, dict[int, Observation]] = {}
    """Observations of iterations that are not completed, by iteration and rank."""

    cursor: int = 0
    """Asynchronous modes: the first position of the permutations that was not handed out."""
    dropped: int = 0
    """Samples that were handed out and will not be used: their worker died, or policies changed."""
    recent: dict[int, Observation] = {}
    """Asynchronous modes: the latest observation of each worker in this round."""
    speed: float = 0.0
    """Asynchronous modes: samples per second of all workers together, as of the last round."""
    round_reports: int = 0
    """Reports since the last round, which takes as many as there are workers."""
    apply_from: int = 0
    """The first iteration under the present barrier."""
    passed: dict[int, int] = {}
    """PSP by the letter: by rank, up to which iteration servers may apply its updates."""
    cut: int | None = None
    """A-BSP: the last iteration that was cut short."""
    quorums: dict[int, list[int]] = {}
    """Backup workers: who makes the iterations that are not complete, as far as they were named."""

    pending: dict[str, Choice] = {}
    """Choices that hold once every worker stands."""
    hold_sequence: int | None = None
    """Every worker is to stand at its next boundary, by orders from this sequence on; None: they go on."""
    all_stand: bool = False
    """While they are to stand: they do, and it was said."""
    paused_ms: int = 0
    """How long the job was paused so far."""

    placement_version: int = 0
    blocks: list[Block] = []
    flags: dict[str, str] = {}
    """Open flags: from ``kind:rank`` to the flag's name."""
    flag_count: int = 0

    running_ms: int | None = None
    stop_at: int | None = None
    stop_reason: str = ""
    model_saved: bool = False
    """Whether a worker has saved the final parameters."""
    resumed_ms: int = 0
    """When the control plane last came back from a silence."""
    holds_slots: bool = False

    @property
    def live_workers(self) -> list[Worker]:
        """Workers whose life has not ended, by rank."""
        return [worker for _, worker in sorted(self.workers.items()) if not worker.over]

    @property
    def live_servers(self) -> list[Server]:
        """Servers whose life has not ended, by index."""
        return [server for _, server in sorted(self.servers.items()) if not server.over]

    @property
    def live_processes(self) -> list[Process]:
        """All of them, workers first."""
        return [*self.live_workers, *self.live_servers]

    def process(self, role: Role, index: int) -> Process | None:
        """The current life of that process, if there ever was one."""
        return self.workers.get(index) if role == "worker" else self.servers.get(index)


class Snapshot(msgspec.Struct, kw_only=True):
    """What is written: the records, the policies' states, and the cursor that they stand for."""

    version: int = SNAPSHOT_VERSION
    cursor: str
    deadline_ms: int | None
    job: Job
    policies: dict[str, msgspec.Raw]


def read_snapshot(data: bytes) -> Snapshot:
    """The snapshot in ``data``.

    Raises:
        SnapshotVersionError: if it was written by a release with other records, or cannot be read.
    """
    try:
        version = msgspec.msgpack.decode(data, type=dict[str, Any]).get("version")
        if version != SNAPSHOT_VERSION:
            raise SnapshotVersionError(f"snapshot has version {version}, this release reads {SNAPSHOT_VERSION}")
        return msgspec.msgpack.decode(data, type=Snapshot)
    except msgspec.DecodeError as error:
        raise SnapshotVersionError(f"snapshot of version {SNAPSHOT_VERSION} cannot be read: {error}") from None

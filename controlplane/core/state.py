"""The engine's state of one job, and how it changes: read this first.

**What the engine is.** The engine is a deterministic state machine. ``Engine.handle`` takes one entry of the job's log
(``events``), changes the ``Job`` below, and returns commands (``commands``). Nothing else decides: the same entries
lead to the same job and the same commands, in the live driver, in the simulator and in a replay. Time is the time of
the entry; random numbers come from the job's seed. A job can therefore be stored as a snapshot, which is written whole
and has the version of these records; a snapshot of another version is refused, and the driver rebuilds the job from the
log.

**One entry.** ``engine`` finds the handler of the event; a message of a process goes through ``conversation``, which
rejects what is stale or out of order. Handlers share a ``Context``: the job, its policies, the time, the commands so
far. An event that is not valid in the present state raises ``EventRefused`` and changes nothing. After the handler,
``engine`` starts what was waiting for this entry: a change that needs all workers to stop, workers that join, blocks
that are filled again. It then computes the next deadline, at which the driver appends ``TimePassed``.

**What begins and ends.** There are four scopes, one within the other:

    incarnation   one version of the log. A new one begins when a part of the log was lost. All current
                  decisions are then issued again, in orders that replace all earlier ones.
    process       one instance of a worker or server. A restarted process is a new record (``states``)
                  with a new instance name.
    generation    a roster and its shares. A new one begins whenever a worker joins or leaves, or policies
                  change. Generations are numbered, and servers count updates per generation.
    round         in lockstep: the open iteration. Otherwise: as many reports as there are workers.

Each has a record, and the record is replaced as a whole when the next one begins, never reset field by field, so no
field can be forgotten. ``Job.roll_back`` does the same for all records when parameters are lost; the few things that
outlive a rollback are named there and nowhere else.

    generation    who counts, and the share of each
    samples       which samples of the permutations come next
    round         reports of iterations that are not complete
    updates       whose updates make an iteration, or are applied
    hold          whether every worker should stop at its next boundary, and whether all have stopped
    requests      users' requests and new workers that wait for a boundary
    end           where the job stops, and why
    placement     which server holds which block, and the open change
    checkpoints   complete checkpoints, and those being written
    refilling     blocks of lost servers that workers send to new ones
    starts        which processes are starting, and which should be restarted
    flags, pace   open findings; how long iterations take
    piloted       the input of an autopilot
    guarded       the input of a convergence guard

**Orders and grants.** All that a worker may do is in one value, its orders. Newer orders replace older ones completely,
so a lost, late or repeated message does no harm. Orders are compared by incarnation, generation and sequence. A worker
is *granted* iterations up to its watermark. Lockstep grants some iterations ahead: the servers hold each pull until all
updates are in; asynchronous barriers grant iterations to each worker separately, with a lease of samples. A grant
cannot be revoked reliably, since the worker may have used it before it receives the revocation. ``granted`` is
therefore the highest watermark that was ever sent, and every change to a running job begins with the first iteration
that no worker was granted. If that is too late, the job is held: every worker stops at its next boundary and reports
it, and the job is *quiesced* once all have.

**Where things are.** Each module imports only modules above it:

    states, records            tables of states and transitions, processes, and other records
    choices, barriers          interfaces of policies; ``combinations``: which of them go together
    commands, events           the engine's outputs and inputs
    state, modes               this module; how lockstep, asynchronous and attached jobs differ
    context                    the entry that is being handled
    ordering                   how decisions become orders
    sharing                    shares, and the samples assigned for them
    restarts, scripts          new instances of processes; scripts that agents start
    granting, placing          how far each worker may go; which server holds which block
    membership, filling        who counts from when; a global batch that grows
    recovery                   checkpoints, and what follows when parameters are lost
    iterations, starting       what follows a complete iteration; how a job begins
    hangs, attached            ranks that a launcher starts, and iterations of theirs that do not end
    changes, supervisors       other policies while the job runs; the autopilot and the guard that ask for them
    lifecycle, conversation    from submission to the end, with all deadlines; messages of processes
    engine                     handles one entry

``check_invariants`` says what holds after every entry, whatever the log.
"""

from typing import Any, Final

import msgspec

from controlplane.core.choices import Observation, Transfer
from controlplane.core.records import (
    Attachment,
    Checkpoint,
    Guarded,
    LeftOut,
    Piloted,
    PlacementChange,
    PlacementTrial,
    Refill,
    Revival,
    Scripts,
    SlotRequest,
)
from controlplane.core.states import AT_WORK, JOB_OVER, JobState, Pieces, Process, ProcessState, Server, Worker
from controlplane.protocol.base import UNREADABLE
from controlplane.protocol.checkpoints import Restore, SavedBlock, WholeCheckpoint
from controlplane.protocol.keys import instance_name
from controlplane.protocol.orders import Block, Role
from controlplane.protocol.spec import Choice, JobSpec, Synchronization

SNAPSHOT_VERSION: Final = 9


class SnapshotVersionError(ValueError):
    """A snapshot that this release cannot read; the log can still be replayed."""


class Generation(msgspec.Struct, kw_only=True):
    """Which workers count, and their shares. Replaced as a whole when the roster changes."""

    number: int = 0
    roster: list[int] = []
    first_iteration: int = 0
    """The first iteration of this roster."""
    shares: dict[int, int] = {}
    """The share of every counting worker, by rank."""
    offsets: dict[int, int] = {}
    share_from: int = 0
    is_short: bool = False
    """The limits do not let this roster take the whole global batch, so the earlier shares stay."""
    budget_s: float | None = None
    """Workers stop processing an iteration after this time."""
    ceilings: dict[int, int] = {}
    """With a budget: the most samples that each worker may process, by rank."""


class Samples(msgspec.Struct, kw_only=True):
    """Which samples of the permutations come next."""

    count: int = 0
    """Samples in the training split."""
    origin_iteration: int = 0
    origin_position: int = 0
    """Lockstep: where the samples of ``origin_iteration`` begin."""
    global_batch: int = 0
    """The present global batch if it depends on the number of workers; 0: the one of the spec."""
    budget_width: int = 0
    """With a budget: positions from one iteration to the next; 0: the global batch."""
    cursor: int = 0
    """Asynchronous modes: the first position of the permutations that is not handed out."""
    dropped: int = 0
    """Samples that were handed out and will not be used because their worker died or policies changed."""


class Round(msgspec.Struct, kw_only=True):
    """Reports of iterations that are not complete."""

    completed: int = -1
    """The last iteration that every counting worker has reported."""
    behind: int = 0
    """How many counting workers have not reported the iteration after that one."""
    completed_ms: int = 0
    observed: dict[int, dict[int, Observation]] = {}
    """Observations of iterations that are not completed, by iteration and rank."""
    transfers: dict[int, list[Transfer]] = {}
    """Exchanges with servers in iterations that are not completed, by iteration."""
    processed: dict[int, int] = {}
    """Reported samples of synchronous iterations that are not complete, by iteration."""
    recent: dict[int, Observation] = {}
    """Asynchronous modes: the latest observation of each worker in this round."""
    recent_transfers: list[Transfer] = []
    """Asynchronous modes: the exchanges with servers in this round."""
    reports: int = 0
    """Reports since the last round; a round is as many reports as there are workers."""


class Pace(msgspec.Struct, kw_only=True):
    """How long iterations take."""

    iteration_s: float = 0.0
    """Smoothed length of an iteration."""
    speed: float = 0.0
    """Asynchronous modes: samples per second of all workers together, as of the last round."""


class Updates(msgspec.Struct, kw_only=True):
    """Which workers' updates make an iteration, or are applied."""

    apply_from: int = 0
    """The first iteration under the present barrier."""
    skip_to: int = 0
    """Iterations before this one need no reports: the job became synchronous with it."""
    passed: dict[int, int] = {}
    """PSP Alg. 1 to the letter: by rank, the last iteration whose updates servers may apply."""
    cut: int | None = None
    """A-BSP: the last iteration that was cut short."""
    quorums: dict[int, list[int]] = {}
    """Backup workers: by incomplete iteration, the workers whose updates make it, once decided."""
    late: dict[int, int] = {}
    """By rank: how many updates were too late and were dropped."""
    late_until: dict[int, int] = {}
    """By rank: the last iteration with a dropped update. Every server reports it; a worker's updates come in order."""
    missing: dict[int, int] = {}
    """By rank: the last iteration that a server reported as left unfinished."""


class Hold(msgspec.Struct, kw_only=True):
    """Whether every worker should stop at its next boundary; replaced whole when all have stopped, and on resuming."""

    sequence: int | None = None
    """Orders from this sequence on ask workers to stop; None if they continue."""
    is_quiesced: bool = False
    """All have stopped, and that was published."""


class Requests(msgspec.Struct, kw_only=True):
    """Requests that wait for a boundary."""

    choices: dict[str, Choice] = {}
    """Policies that take effect once the job is quiesced."""
    actor: str = ""
    """Who asked for the last change of policies, also once it has taken effect."""
    left_out: dict[int, LeftOut] = {}
    """Excluded and drained workers, by rank."""
    respread: str = ""
    """Why blocks should be placed again once a requested server has joined; empty if they should not."""
    join_at: int | None = None
    """Workers wait to join or to leave; in synchronous modes, before this iteration."""
    join_by_ms: int | None = None
    """Until when asynchronous workers that have connected wait for others that are starting."""


class End(msgspec.Struct, kw_only=True):
    """Where the job stops, and why."""

    stop_at: int | None = None
    reason: str = ""
    model_saved: bool = False
    """Whether a worker has saved the final parameters."""
    by_ms: int | None = None
    """When the job ends even if its last checkpoint is not complete; None if it waits for none."""


class Placement(msgspec.Struct, kw_only=True):
    """Which server holds which block, and the planned changes."""

    version: int = 0
    blocks: list[Block] = []
    plans: int = 0
    """The highest version of any placement, planned ones included."""
    known_servers: list[int] = []
    """Servers that were sent to workers with the current placement."""
    change: PlacementChange | None = None
    trial: PlacementTrial | None = None
    exchange_s: float | None = None
    """How long a worker's parallel exchange with all servers took in the last iteration."""
    probes: dict[int, int] = {}
    """By server to be timed: the bytes to transfer."""
    probe_round: int = 0
    prober: int | None = None
    """The rank of the worker that times them."""
    request: SlotRequest | None = None
    ask_again_ms: int = 0
    """There was no slot for another server; the next request is not sent before this time."""

    def renew(self) -> None:
        """Take the next version, because the placement has changed."""
        self.plans += 1
        self.version = self.plans


class Checkpoints(msgspec.Struct, kw_only=True):
    """Complete checkpoints, and those being written."""

    kept: list[Checkpoint] = []
    """Complete checkpoints, the oldest first."""
    restore: Restore | None = None
    """The checkpoint that the current instances started from."""
    saving: dict[int, dict[int, SavedBlock]] = {}
    """Incomplete checkpoints: by iteration, the pieces by their start."""
    splits: dict[int, bytes] = {}
    """With split data: the data policy's state for coming checkpoints, by iteration."""
    whole: WholeCheckpoint | None = None
    """The checkpoint whose manifest should be written."""
    stage: str = ""
    """Asynchronous modes: "hold" while workers should stop for one, "save" while servers write it."""
    save_at: int | None = None
    saved_rounds: int = 0
    """Asynchronous modes: how many global batches had been handed out when the last checkpoint was begun."""


class Refilling(msgspec.Struct, kw_only=True):
    """Blocks of lost servers that workers send to new ones."""

    current: Refill | None = None
    count: int = 0
    by_block: dict[int, int] = {}
    """How often each block was restored from a worker's copy."""


class Starts(msgspec.Struct, kw_only=True):
    """Which processes are starting, and which should be restarted."""

    counts: dict[str, int] = {}
    """How many instances of each process there have been, by its title."""
    starting: dict[str, None] = {}
    """Titles of the processes that were ordered and have not said hello, in the order of their orders."""
    at_work: int = 0
    """How many workers run and have not reached the job's end."""
    revivals: dict[str, Revival] = {}
    """Processes to restart, by title."""
    short: dict[str, int] = {}
    """How many instances in a row were short, by title; at least 1."""
    restarts: dict[str, int] = {}
    """How often each was restarted, by title."""
    is_rebuilding: bool = False
    """All processes restart because parameters were lost."""
    rebuild_ms: int = 0
    looked_ms: int = 0
    """The time of the last ``TimePassed``, by the log's clock."""
    away: list[int] = []
    """Agents without a recent heartbeat at that time."""


class Flags(msgspec.Struct, kw_only=True):
    """Open findings."""

    open: dict[str, str] = {}
    """From ``kind:subject:rank`` to the flag's name."""
    count: int = 0
    shown_ms: int = 0
    """When the detector was last shown an iteration."""
    unanswered: dict[int, list[int]] = {}
    """When workers sample one another: by worker that does not answer, the workers that it does not answer."""


class Job(msgspec.Struct, kw_only=True):
    """Everything that decisions about one job depend on, except the policies' own states."""

    number: int
    spec: JobSpec | None = None
    salt: bytes = b""
    """Makes names of instances unguessable; empty: names are only counted."""
    synchronization: Synchronization = Synchronization()
    """The present policies: those of the spec until they are changed."""
    state: JobState = JobState.SUBMITTED
    since_ms: int = 0
    awaited: str = ""
    """What the job is waiting for, as last published."""
    running_ms: int | None = None
    pauses: dict[str, str] = {}
    """Why the job is paused: each cause with its reason; empty if it is not."""
    paused_ms: int = 0
    """How long the job was paused so far."""
    resumed_ms: int = 0
    """When the control plane last came back after an outage."""
    holds_slots: bool = False
    incarnation: int = 0
    forgot: bool = False
    """Whether orders may have been issued that this state does not contain, because a part of the log was lost."""
    sequence: int = 0
    """Sequence of the last orders; increases as long as the job exists."""

    workers: dict[int, Worker] = {}
    servers: dict[int, Server] = {}
    attachment: Attachment = msgspec.field(default_factory=Attachment)
    """State of attached jobs only."""
    scripts: Scripts = msgspec.field(default_factory=Scripts)
    """State of attached jobs whose script agents start."""
    starts: Starts = msgspec.field(default_factory=Starts)
    generation: Generation = msgspec.field(default_factory=Generation)
    samples: Samples = msgspec.field(default_factory=Samples)
    round: Round = msgspec.field(default_factory=Round)
    pace: Pace = msgspec.field(default_factory=Pace)
    updates: Updates = msgspec.field(default_factory=Updates)
    hold: Hold = msgspec.field(default_factory=Hold)
    requests: Requests = msgspec.field(default_factory=Requests)
    end: End = msgspec.field(default_factory=End)
    placement: Placement = msgspec.field(default_factory=Placement)
    checkpoints: Checkpoints = msgspec.field(default_factory=Checkpoints)
    refilling: Refilling = msgspec.field(default_factory=Refilling)
    flags: Flags = msgspec.field(default_factory=Flags)
    piloted: Piloted = msgspec.field(default_factory=Piloted)
    guarded: Guarded = msgspec.field(default_factory=Guarded)

    @property
    def live_workers(self) -> list[Worker]:
        """Workers that have not ended, by rank."""
        return [worker for _, worker in sorted(self.workers.items()) if not worker.over]

    @property
    def live_servers(self) -> list[Server]:
        """Servers that have not ended, by index."""
        return [server for _, server in sorted(self.servers.items()) if not server.over]

    @property
    def live_processes(self) -> list[Process]:
        """All of them, workers first."""
        return [*self.live_workers, *self.live_servers]

    @property
    def counting(self) -> list[Worker]:
        """The workers of the roster, by rank."""
        workers = self.workers
        return [workers[rank] for rank in self.generation.roster]

    @property
    def is_at_boundary(self) -> bool:
        """Whether every counting worker has stopped at a boundary. Cost: linear in the workers."""
        return all(worker.is_at_boundary for worker in self.counting)

    @property
    def batch(self) -> int:
        """Samples per iteration over all counting workers."""
        assert self.spec is not None
        return self.samples.global_batch or self.spec.global_batch

    @property
    def width(self) -> int:
        """Positions from one synchronous iteration to the next."""
        return self.samples.budget_width or self.batch

    def counts(self, rank: int) -> bool:
        """Whether that rank is in the roster."""
        return rank in self.generation.shares

    def process(self, role: Role, index: int) -> Process | None:
        """The current instance of that process, if it was ever started."""
        return self.workers.get(index) if role == "worker" else self.servers.get(index)

    def instance_name(self, title: str, life: int) -> str:
        """The name of that process instance."""
        return instance_name(self.salt, title, self.incarnation, life)

    def advance(self, worker: Worker, iteration: int) -> None:
        """``worker`` has finished ``iteration``, or no longer needs to report it."""
        current = self.round
        if worker.last_completed <= current.completed < iteration:
            current.behind -= 1
        worker.done = iteration

    def reached(self) -> int:
        """The last iteration that every worker has finished. Cost: linear in the workers."""
        return min([worker.last_completed for worker in self.counting], default=self.round.completed)

    def recount(self) -> None:
        """Recount the workers that are behind. Cost: linear in the workers."""
        done = self.round.completed
        due = done + 1
        # `last_completed <= done`, without a call for each worker
        behind = [worker for worker in self.counting if worker.done <= done and worker.from_iteration <= due]
        self.round.behind = len(behind)

    def release_hold(self) -> None:
        """Workers no longer need to stop at a boundary; orders follow."""
        self.hold = Hold()
        for worker in self.counting:
            worker.is_stopped = False

    def roll_back(self, target: Checkpoint, *, stop_at: int | None) -> None:
        """Reset the records to the state before ``target.iteration``.

        Each begins as in a new job, except for the fields named here. Processes, flags, the pace and the states of
        policies are not rolled back.
        """
        first, requests, placement = target.iteration, self.requests, self.placement
        self.generation = Generation(number=self.generation.number, first_iteration=first, share_from=first)
        self.round = Round(completed=first - 1)
        self.updates = Updates(apply_from=first, late=self.updates.late)
        self.hold = Hold()
        self.requests = Requests(
            choices=requests.choices, actor=requests.actor, left_out=requests.left_out, respread=requests.respread
        )
        self.end = End(stop_at=stop_at, reason=self.end.reason)
        self.samples = Samples(
            count=self.samples.count,
            global_batch=self.samples.global_batch,
            origin_iteration=first,
            origin_position=target.position,
            cursor=target.position,
            dropped=target.dropped,
        )
        self.placement = Placement(
            version=placement.version,
            blocks=placement.blocks,
            plans=placement.plans,
            known_servers=placement.known_servers,
            exchange_s=placement.exchange_s,
            probe_round=placement.probe_round,
            request=placement.request,
            ask_again_ms=placement.ask_again_ms,
        )
        self.checkpoints = Checkpoints(
            kept=self.checkpoints.kept,
            restore=Restore(iteration=first, is_start=target.is_start) if first else None,
            saved_rounds=target.position // self.batch,
        )
        self.refilling = Refilling(count=self.refilling.count)
        self.guarded = Guarded(before=self.guarded.before)
        for worker in self.workers.values():
            worker.pieces = Pieces()


class Snapshot(msgspec.Struct, kw_only=True):
    """The contents of a snapshot: the records, the policies' states, and the cursor that they belong to."""

    version: int = SNAPSHOT_VERSION
    cursor: str
    deadline_ms: int | None
    job: Job
    policies: dict[str, msgspec.Raw]


_decoder: msgspec.msgpack.Decoder[Snapshot] = msgspec.msgpack.Decoder(Snapshot)


def read_snapshot(data: bytes) -> Snapshot:
    """The snapshot in ``data``.

    Raises:
        SnapshotVersionError: if it was written by a release with other records, or cannot be read.
    """
    try:
        version = msgspec.msgpack.decode(data, type=dict[str, Any]).get("version")
        if version != SNAPSHOT_VERSION:
            raise SnapshotVersionError(f"snapshot has version {version}, this release reads {SNAPSHOT_VERSION}")
        return _decoder.decode(data)
    except UNREADABLE as error:
        raise SnapshotVersionError(f"snapshot of version {SNAPSHOT_VERSION} cannot be read: {error}") from None


def check_invariants(job: Job) -> None:
    """Assert every invariant.

    Raises:
        AssertionError: names the job and the violated invariant.
    """
    if job.spec is None:
        assert not job.workers, _story(job, "there are workers before submission")
        return
    _check_counts(job)
    _check_roster(job)
    _check_shares(job)
    _check_placement(job)
    for worker in job.workers.values():
        assert worker.done <= worker.watermark, _story(job, f"{worker.title} is at {worker.done}, beyond its grant")
        if worker.orders is not None:
            orders = worker.orders
            assert orders.watermark <= worker.watermark, _story(job, f"{worker.title} was granted more than recorded")
            assert orders.sequence <= job.sequence, _story(job, f"{worker.title} has orders of the future")
            # An asynchronous worker may be stopped before the end of its grant: no other worker waits for it.
            reaches_stop = orders.stop_at is not None and orders.watermark >= orders.stop_at
            excused = worker.stop_at is not None or job.forgot or worker.rank is not None
            assert not reaches_stop or excused, _story(job, "granted beyond the stop")
    for key, name in job.flags.open.items():
        assert job.state not in JOB_OVER, _story(job, f"flag {name} ({key}) is open after the end")


def _check_counts(job: Job) -> None:
    """Cached counts agree with the records that they summarize."""
    processes: list[Process] = [*job.workers.values(), *job.servers.values()]
    silent = {process.title for process in processes if process.state is ProcessState.ORDERED}
    assert set(job.starts.starting) == silent, _story(job, f"{set(job.starts.starting) ^ silent} start, or do not")
    busy = sum(worker.state in AT_WORK for worker in job.workers.values())
    assert job.starts.at_work == busy, _story(job, f"{busy} workers are at work, not {job.starts.at_work}")


def _check_roster(job: Job) -> None:
    assert job.generation.roster == sorted(set(job.generation.roster)), _story(
        job, f"roster {job.generation.roster} is not a sorted set"
    )
    if job.state not in {JobState.RUNNING, JobState.PAUSED, JobState.FINISHING}:
        return
    gone = [rank for rank in job.generation.roster if job.workers[rank].state is ProcessState.LOST]
    assert not gone, _story(job, f"lost workers {gone} count")
    assert (job.state is JobState.PAUSED) == bool(job.pauses), _story(job, f"it is paused for {job.pauses}")
    if not job.generation.roster:
        excused = job.pauses or job.requests.join_at is not None
        assert excused, _story(job, "no worker counts, it is not paused, and no worker waits to join")
        return
    reached = min(job.workers[rank].last_completed for rank in job.generation.roster)
    assert job.round.completed >= reached or job.round.completed == -1 == reached, _story(
        job, f"iteration {reached} stays open"
    )


def _check_shares(job: Job) -> None:
    if not job.generation.number or job.state in JOB_OVER:
        return
    assert job.spec is not None
    assert sorted(job.generation.shares) == job.generation.roster, _story(
        job, f"shares of {sorted(job.generation.shares)}, roster {job.generation.roster}"
    )
    total = sum(job.generation.shares.values())
    if not job.generation.roster or job.generation.is_short:
        return
    assert total == job.batch, _story(job, f"shares sum to {total}, not {job.batch}")
    low, high = job.spec.limits.minimum, job.spec.limits.maximum
    for rank, share in job.generation.shares.items():
        assert low <= share <= (total if high is None else high), _story(job, f"w{rank} has share {share}")
    for rank, most in job.generation.ceilings.items():
        assert job.generation.shares[rank] <= most, _story(
            job, f"w{rank} may process {most}, its share is {job.generation.shares[rank]}"
        )
    widths = job.generation.ceilings or job.generation.shares
    spans = sorted(
        (job.generation.offsets[rank], job.generation.offsets[rank] + width) for rank, width in widths.items()
    )
    ends = [0, *(stop for _, stop in spans)]
    assert all(start == end for (start, _), end in zip(spans, ends, strict=False)), _story(job, f"ranges {spans}")
    assert ends[-1] == job.width, _story(job, f"ranges end at {ends[-1]}, the batch at {job.width}")


def _check_placement(job: Job) -> None:
    if not job.placement.version or not job.servers:
        return
    edges = [0]
    for block in job.placement.blocks:
        assert block.start == edges[-1], _story(job, f"block {block.index} starts at {block.start}, not {edges[-1]}")
        assert block.server in job.servers, _story(job, f"block {block.index} is on server {block.server}")
        edges.append(block.stop)
    size = sum(next(iter(job.servers.values())).tensor_sizes)
    assert edges[-1] == size, _story(job, f"blocks end at {edges[-1]} of {size}")


def _story(job: Job, what: str) -> str:
    return (
        f"job {job.number} ({job.state}, generation {job.generation.number}, iteration {job.round.completed}): {what}"
    )

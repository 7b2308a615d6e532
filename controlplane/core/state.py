"""The engine's state of one job, and how it changes: read this first.

**What the engine is.** A job is a value. ``Engine.handle`` takes one entry of the job's log (``events``), changes the
``Job`` below, and returns commands (``commands``). Nothing else decides: the same entries lead to the same job and the
same commands, in the live driver, in the simulator and in a replay. Time is the time of the entry, chance is drawn from
the job's seed. So a job can be kept as a snapshot, which is written whole and carries the version of these records; a
snapshot of another version is refused, and the driver rebuilds the job from the log.

**One entry.** ``engine`` finds the handler of the event; a message of a process goes through ``conversation``, which
rejects what is stale or out of order. Handlers share a ``Context``: the job, its policies, the time, the commands so
far. An event that is not valid in the present state raises ``EventRefused`` and changes nothing. After the handler,
``engine`` starts what was waiting for this entry: a change that needs all workers to stop, workers that join, blocks
that are filled again. It then computes the next deadline, at which the driver appends ``TimePassed``.

**What begins and ends.** Four things do, one within the other:

    incarnation   one version of the log. A new one begins where a part of the log was lost. All current decisions are
                  ordered again, under orders that replace all that were given before.
    process       one instance of a worker or server. A new one is a record of its own (``states``), with a
                  new instance.
    generation    a roster and its shares. A new one begins whenever a worker joins or leaves, or policies change. It
                  is numbered, and servers count updates by it.
    round         the iteration that is open in lockstep. Without lockstep: as many reports as there are workers.

Each has a record, and the record is replaced as a whole when the next one begins, never cleaned field by field: fields
that are not named then begin as in a new job. ``Job.roll_back`` does the same for all records at once when parameters
are lost; the few things that outlive a rollback are named there and nowhere else.

    generation    who counts, and the share of each
    samples       which samples of the permutations come next
    round         what was reported and is not complete
    updates       whose updates make an iteration, or are applied
    hold          whether every worker should stop at its next boundary, and whether all have
    requests      users' requests and new workers that wait for a boundary
    end           where the job stops, and why
    placement     which server holds which block, and the open change
    checkpoints   what is kept, and what is being written
    refilling     blocks of lost servers that workers give back
    starts        which processes start, and which should be started again
    flags, pace   findings that are open; how long things take
    piloted       what an autopilot is shown of the job
    guarded       what a guard of convergence is shown

**Orders and grants.** What a worker may do is one value, its orders: newer ones replace older ones whole, so a lost,
late or repeated message does no harm. They are compared by incarnation, generation and sequence. A worker is *granted*
iterations up to its watermark. Lockstep grants some iterations ahead: the servers hold each pull until all updates
are in; asynchronous barriers grant by worker, each time with a lease of samples. A grant cannot be revoked reliably,
since the worker may have used it before it receives the revocation. ``granted`` is therefore the highest watermark that
was ever sent, and every change to a running job begins with the first iteration that no worker was granted. Where that
is too late, the job is held: every worker stops at its next boundary and reports it, and the job is *quiesced* once all
have.

**Where things are.** Each module imports only modules above it:

    states, records            life cycles as tables, processes, and other single records
    choices, barriers          policies as the engine sees them; ``combinations``: which of them go together
    commands, events           what comes out and what goes in
    state, modes               this module; what differs between lockstep, asynchronous and attached jobs
    context                    one entry being handled
    ordering                   how decisions become orders
    sharing                    shares, and the samples that they are made of
    restarts                   new instances of processes
    granting, placing          how far each worker may go; which server holds which block
    membership, filling        who counts from when; a global batch that grows
    recovery                   checkpoints, and what follows when parameters are lost
    iterations, starting       complete iterations and what follows; how a job begins
    attached                   ranks of a launcher
    changes, supervisors       other policies while the job runs; the autopilot and the guard that ask for them
    lifecycle, conversation    from submission to the end, with all deadlines; messages of processes
    engine                     from an entry to its commands

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
    SlotRequest,
)
from controlplane.core.states import AT_WORK, JOB_OVER, JobState, Pieces, Process, ProcessState, Server, Worker
from controlplane.protocol.base import UNREADABLE
from controlplane.protocol.checkpoints import Restore, SavedBlock, WholeCheckpoint
from controlplane.protocol.keys import instance_name
from controlplane.protocol.orders import Block, Role
from controlplane.protocol.spec import Choice, JobSpec, Synchronization

SNAPSHOT_VERSION: Final = 6


class SnapshotVersionError(ValueError):
    """A snapshot that this release cannot read; the log can still be replayed."""


class Generation(msgspec.Struct, kw_only=True):
    """Who counts, and the share of each; replaced whole whenever either is decided for another roster."""

    number: int = 0
    roster: list[int] = []
    first_iteration: int = 0
    """From which this roster counts."""
    shares: dict[int, int] = {}
    """By rank, of every counting worker."""
    offsets: dict[int, int] = {}
    share_from: int = 0
    is_short: bool = False
    """Limits forbid this roster to share the whole global batch: the shares are those from before."""
    budget_s: float | None = None
    """Workers stop processing an iteration after so long."""
    ceilings: dict[int, int] = {}
    """With a budget: how many samples each may process, by rank."""


class Samples(msgspec.Struct, kw_only=True):
    """Which samples of the permutations come next."""

    count: int = 0
    """Of the training split."""
    origin_iteration: int = 0
    origin_position: int = 0
    """Lockstep: where the samples of ``origin_iteration`` begin."""
    global_batch: int = 0
    """The present one, where it goes with the number of workers; 0: as the spec has it."""
    budget_width: int = 0
    """With a budget: positions from one iteration to the next; 0: as many as the global batch."""
    cursor: int = 0
    """Asynchronous modes: the first position of the permutations that was not handed out."""
    dropped: int = 0
    """Samples that were handed out and will not be used: their worker died, or policies changed."""


class Round(msgspec.Struct, kw_only=True):
    """What was reported and is not complete."""

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
    """Samples that were reported of synchronous iterations which are not complete, by iteration."""
    recent: dict[int, Observation] = {}
    """Asynchronous modes: the latest observation of each worker in this round."""
    recent_transfers: list[Transfer] = []
    """Asynchronous modes: the exchanges with servers in this round."""
    reports: int = 0
    """Reports since the last round, which takes as many as there are workers."""


class Pace(msgspec.Struct, kw_only=True):
    """How long things take."""

    iteration_s: float = 0.0
    """Smoothed length of an iteration."""
    speed: float = 0.0
    """Asynchronous modes: samples per second of all workers together, as of the last round."""


class Updates(msgspec.Struct, kw_only=True):
    """Whose updates make an iteration, or are applied."""

    apply_from: int = 0
    """The first iteration under the present barrier."""
    skip_to: int = 0
    """No worker must report iterations before this one: the job became synchronous with it."""
    passed: dict[int, int] = {}
    """PSP taken literally: by rank, up to which iteration servers may apply its updates."""
    cut: int | None = None
    """A-BSP: the last iteration that was cut short."""
    quorums: dict[int, list[int]] = {}
    """Backup workers: the workers that make each incomplete iteration, if they were named."""
    late: dict[int, int] = {}
    """By rank: how many updates came too late and were dropped."""
    late_until: dict[int, int] = {}
    """By rank: the last iteration of those. Each server says it, and each worker's updates come in order."""
    missing: dict[int, int] = {}
    """By rank: the last iteration that it was said to have left in the middle of."""


class Hold(msgspec.Struct, kw_only=True):
    """Whether every worker should stop at its next boundary; replaced whole when all have stopped, and on resuming."""

    sequence: int | None = None
    """They should stop, by orders from this sequence on; None: they continue."""
    is_quiesced: bool = False
    """They have, and it was said."""


class Requests(msgspec.Struct, kw_only=True):
    """What was asked for, and waits for a boundary."""

    choices: dict[str, Choice] = {}
    """Policies that hold once the job is quiesced."""
    actor: str = ""
    """Who asked for the last change of policies, also once it has taken effect."""
    left_out: dict[int, LeftOut] = {}
    """Excluded and drained workers, by rank."""
    respread: str = ""
    """Why blocks should be placed again once a requested server has joined; empty: they should not."""
    join_at: int | None = None
    """Workers wait to join or to leave; in synchronous modes, before this iteration."""


class End(msgspec.Struct, kw_only=True):
    """Where the job stops, and why."""

    stop_at: int | None = None
    reason: str = ""
    model_saved: bool = False
    """Whether a worker has saved the final parameters."""
    by_ms: int | None = None
    """When it ends, although a checkpoint that it waits for at its end is not whole; None: it waits for none."""


class Placement(msgspec.Struct, kw_only=True):
    """Which server holds which block, and what is to change about it."""

    version: int = 0
    blocks: list[Block] = []
    plans: int = 0
    """The highest version that any placement had or was to have."""
    known_servers: list[int] = []
    """Servers that were sent to workers with the current placement."""
    change: PlacementChange | None = None
    trial: PlacementTrial | None = None
    exchange_s: float | None = None
    """What a worker's exchange with all servers, side by side, took in the last iteration."""
    probes: dict[int, int] = {}
    """Servers to be timed, and by how many bytes."""
    probe_round: int = 0
    prober: int | None = None
    """The rank of the worker that should do it."""
    request: SlotRequest | None = None
    ask_again_ms: int = 0
    """There was no slot for another server: not before then is one asked for again."""

    def renew(self) -> None:
        """It says something else from now on: it has the next version."""
        self.plans += 1
        self.version = self.plans


class Checkpoints(msgspec.Struct, kw_only=True):
    """What is kept, and what is being written."""

    kept: list[Checkpoint] = []
    """Complete checkpoints, the oldest first."""
    restore: Restore | None = None
    """The one that the current instances started from."""
    saving: dict[int, dict[int, SavedBlock]] = {}
    """Incomplete checkpoints: by iteration, the pieces by their start."""
    splits: dict[int, bytes] = {}
    """Where the data are split: what goes into coming ones, by their iteration."""
    whole: WholeCheckpoint | None = None
    """One whose manifest should be written."""
    stage: str = ""
    """Asynchronous modes: "hold" while workers should stop for one, "save" while servers write it."""
    save_at: int | None = None
    saved_rounds: int = 0
    """Asynchronous modes: how many global batches had been handed out when the last one was begun."""


class Refilling(msgspec.Struct, kw_only=True):
    """Blocks of lost servers that workers give back."""

    current: Refill | None = None
    count: int = 0
    by_block: dict[int, int] = {}
    """How often each block began again with a worker's copy."""


class Starts(msgspec.Struct, kw_only=True):
    """Which processes start, and which should be started again."""

    counts: dict[str, int] = {}
    """How many instances of each process there have been, by its title."""
    starting: dict[str, None] = {}
    """Titles of the processes that were ordered and have not said hello, in that order."""
    at_work: int = 0
    """How many workers live and have not reached the job's end."""
    revivals: dict[str, Revival] = {}
    """Processes to start again, by title."""
    short: dict[str, int] = {}
    """How many instances in a row were short, by title; at least 1."""
    restarts: dict[str, int] = {}
    """How often each was started again, by title."""
    is_rebuilding: bool = False
    """All processes restart, since parameters were lost."""
    rebuild_ms: int = 0
    looked_ms: int = 0
    """When time passed last, by the log's clock."""
    away: list[int] = []
    """Agents that sent no heartbeat lately, as of then."""


class Flags(msgspec.Struct, kw_only=True):
    """Findings that are open."""

    open: dict[str, str] = {}
    """From ``kind:subject:rank`` to the flag's name."""
    count: int = 0
    shown_ms: int = 0
    """When the detector was last shown an iteration."""
    unanswered: dict[int, list[int]] = {}
    """Where workers sample one another: by one that does not answer, those that it does not answer."""


class Job(msgspec.Struct, kw_only=True):
    """Everything that decisions about one job depend on, but for the policies' own states."""

    number: int
    spec: JobSpec | None = None
    salt: bytes = b""
    """What makes names of instances unguessable; empty: they are counted, and no more."""
    synchronization: Synchronization = Synchronization()
    """The present choices: those of the spec, until a user changes them."""
    state: JobState = JobState.SUBMITTED
    since_ms: int = 0
    awaited: str = ""
    """What the job waits for in this state, as last published."""
    running_ms: int | None = None
    pauses: dict[str, str] = {}
    """Why the job is paused: each cause with its reason. It continues when there is none."""
    paused_ms: int = 0
    """How long the job was paused so far."""
    resumed_ms: int = 0
    """When the control plane last came back from a silence."""
    holds_slots: bool = False
    incarnation: int = 0
    forgot: bool = False
    """Whether orders may have been given that this state does not know of: a part of the log was lost."""
    sequence: int = 0
    """Sequence of the last orders; increases as long as the job exists."""

    workers: dict[int, Worker] = {}
    servers: dict[int, Server] = {}
    attachment: Attachment = msgspec.field(default_factory=Attachment)
    """Of an attached job."""
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
        """Samples per iteration over all who count."""
        assert self.spec is not None
        return self.samples.global_batch or self.spec.global_batch

    @property
    def width(self) -> int:
        """Positions from one synchronous iteration to the next."""
        return self.samples.budget_width or self.batch

    def counts(self, rank: int) -> bool:
        """Whether that worker is in the roster."""
        return rank in self.generation.shares

    def process(self, role: Role, index: int) -> Process | None:
        """The current instance of that process, if it was ever started."""
        return self.workers.get(index) if role == "worker" else self.servers.get(index)

    def instance_name(self, title: str, life: int) -> str:
        """The name of that process instance."""
        return instance_name(self.salt, title, self.incarnation, life)

    def advance(self, worker: Worker, iteration: int) -> None:
        """``worker`` has finished ``iteration``, or need not report it any more."""
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
        """No worker needs to stop at a boundary any more; orders follow."""
        self.hold = Hold()
        for worker in self.counting:
            worker.is_stopped = False

    def roll_back(self, target: Checkpoint, *, stop_at: int | None) -> None:
        """Make the records what they were before ``target.iteration``.

        Each begins as in a fresh job, but for what is named here. Processes, flags and the pace are not rolled back,
        and neither is what policies have learned.
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
        AssertionError: naming the job and what does not hold.
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

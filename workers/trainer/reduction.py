"""All-reduce for a job without servers: every worker holds the parameters, and all sum their updates.

It has the interface of ``exchange``: a push adds this worker's sum to the others' and applies the step, a pull returns
the current parameters. A member that joins, or missed the last step of a generation that failed, gets parameters and
the rule's state from another. The update and its number of samples are sent in one vector, so members need no prior
agreement: the result is exact for any shares, and a member without samples changes nothing.

A sum that fails is repeated in the next group from the update, which is kept. Parts of an update that are final early
may be offered: their sum starts while the rest is computed, and is completed in the group in which it started.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch

from controlplane.protocol.noise import EVERY, NoiseScale
from controlplane.protocol.orders import Orders, PeerAddress, Placement
from controlplane.protocol.spec import JobSpec, SpecError
from controlplane.protocol.training import EQUAL
from workers.collective.chunks import Sums, chunk_offsets
from workers.collective.group import Group, GroupBroken
from workers.collective.packing import copy_state
from workers.collective.rendezvous import Host, Meeting
from workers.link import WorkerLink
from workers.trainer.ledger import Ledger
from workers.trainer.parameters import LocalParameters
from workers.trainer.round import Round
from workers.transport.errors import Stopped
from workers.transport.frames import Header
from workers.workloads.local import Local
from workers.workloads.shape import Clipping
from workers.workloads.tensors import numbers

SHORTEST_S, LONGEST_S = 2.0, 30.0
PATIENCE = 3.0
"""Time limit of a sum, as a multiple of the iteration time, within the two limits above."""

SMOOTHING = 0.2
"""Weight of the newest iteration in the estimated iteration time."""

COUNT_BASE = 4096
"""Counts are sent as two floats below this number times the members, so that float32 represents them exactly."""

OWN = 3
"""Number of elements before the update: its count in two floats, and whether the member should stop; each member's last
time follows.
"""

REMEMBERED = 15
EVERYTHING = 0
"""The single block of a job without servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedReduction:
    """An update that may be partly sent; None: no samples."""

    gradient: torch.Tensor | None
    samples: int
    sums: Sums


def check_reduces(spec: JobSpec, local: Local) -> None:
    """Check that torch's connections between workers are allowed: they neither encrypt nor authenticate.

    Raises:
        SpecError: if this machine encrypts what it exchanges with others.
    """
    if local.encrypts:
        raise SpecError(
            "communication",
            spec.communication,
            f"servers, since the worker at {local.host} encrypts and connections of torch.distributed do not: "
            "use parameter servers, or join its machine with --insecure if the network is private",
        )


class Reduction:
    """One worker's part in the sums of its job.

    Args:
        rank: of this worker.
        sizes: of the tensors of the parameters, in elements.
        host: the address at which the others reach this process.
        device: of the group's vectors: see ``Group``.
        trained: number of leading elements that are gradients, which are sent as bf16 if the job computes in less than
            fp32. The elements after them (running statistics, counts of batches) must not be rounded.
    """

    def __init__(
        self,
        rank: int,
        link: WorkerLink,
        held: LocalParameters,
        spec: JobSpec,
        *,
        sizes: Sequence[int],
        host: str,
        device: str = "cpu",
        trained: int = 0,
    ) -> None:
        self._rank, self._link, self._device = rank, link, device
        self._host = Host(host)
        self._equally = spec.weighing in EQUAL
        self._measures_noise = not self._equally and spec.federated is None
        self.noise = NoiseScale()
        self._rounded = trained if spec.workload.precision != "fp32" else 0
        self._held, self._sizes = held, sizes
        self._shared: torch.Tensor | None = None
        self._vector = torch.zeros(0)
        self._reduction: StartedReduction | None = None
        self._term = (-1, -1)
        self._peers: list[PeerAddress] = []
        self._meeting: Meeting | None = None
        self._group: Group | None = None
        self._pushed_at, self._iteration_s = 0.0, 0.0
        self._sum_s = 0.0
        self._transfers: deque[float] = deque(maxlen=REMEMBERED)
        self.placement_version = 0
        self.ledger = Ledger()
        self.may_stop = False
        """Whether all ranks had orders to stop at the last sum: one that stopped alone would block the others in the
        next.
        """

    def __enter__(self) -> "Reduction":
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    @property
    def address(self) -> tuple[str, int]:
        """The address of this worker's store."""
        return self._host.host, self._host.port

    @property
    def blocks(self) -> set[int]:
        """A single block has all parameters."""
        return {EVERYTHING}

    def adopt(self, placement: Placement) -> set[int]:
        """Sum with the members of ``placement`` from now on; completed sums are not repeated."""
        self._leave()
        self._term, self._peers = (placement.incarnation, placement.generation), placement.peers
        name = "{}.{}".format(*self._term)
        self._meeting = Meeting(name, self._peers, self._rank, self._host.host, device=self._device)
        self.placement_version = placement.version
        return set()

    def pull(self, parameters: torch.Tensor, stamp: Header) -> Round:
        """Return the parameters; a worker that joins later takes part in the others' sums without samples until then.

        They stay in this memory from then on, so that no step has to copy them; between a pull and a push nothing else
        changes them.

        Raises:
            Stopped: if the process is requested to end meanwhile.
        """
        if parameters is not self._shared:
            self._held.live_in(parameters)
            self._shared = parameters
        return self._reach(stamp.iteration, None, stamp)

    def push(self, gradient: torch.Tensor, pending: set[int], stamp: Header) -> Round:
        """Add ``gradient`` to the others' and apply the step; ``pending`` is empty afterwards.

        Raises:
            Stopped: as ``pull``.
        """
        outcome = self._reach(stamp.iteration + 1, gradient, stamp)
        if self._held.version > stamp.iteration:
            pending.clear()
            self._time_iteration()
        return outcome

    def begin(self, iteration: int, gradient: torch.Tensor, samples: int) -> None:
        """The update of ``iteration`` over ``samples`` is about to be computed into ``gradient``; see ``offer``."""
        if self._group is not None and self._held.version == iteration and samples:
            self._reduction = StartedReduction(gradient=gradient, samples=samples, sums=self._sums(self._group))

    def offer(self, final_from: int) -> None:
        """The update announced to ``begin`` is final from that element on: start its sums."""
        begun = self._reduction
        if begun is None:
            return
        final_from += self._front
        try:
            while (stretch := begun.sums.next_before(final_from)) is not None:
                self._pack(stretch, begun.gradient, begun.samples)
                begun.sums.begin(stretch)
        except GroupBroken:
            self._leave()

    def _reach(self, version: int, gradient: torch.Tensor | None, stamp: Header) -> Round:
        """Take part in sums until the parameters have ``version``; the last sum includes ``gradient``."""
        held_s = 0.0
        if self._reduction is not None:
            held_s += self._add_up(self._reduction)
        while self._held.version < version:
            if self._term < (stamp.incarnation, stamp.generation):
                return Round(held_s=held_s, moved=True)
            if not self._join():
                return Round(held_s=held_s, stale=True)
            if self._held.version >= version:
                break
            assert self._group is not None
            own = gradient if self._held.version == version - 1 and stamp.samples else None
            sums = self._sums(self._group)
            samples = 0 if own is None else stamp.samples
            held_s += self._add_up(StartedReduction(gradient=own, samples=samples, sums=sums))
        return Round(held_s=held_s)

    def _add_up(self, begun: StartedReduction) -> float:
        """One sum and its step; return how long others delayed this worker. If it fails, the group is left."""
        self._reduction, began, front = begun, time.monotonic(), self._front
        try:
            for stretch in begun.sums.rest:
                self._pack(stretch, begun.gradient, begun.samples)
                begun.sums.begin(stretch)
            begun.sums.wait()
        except GroupBroken:
            self._leave()
            return 0.0
        self._reduction = None
        high, low, holding, *seconds = numbers([self._vector[:front]])
        self._sum_s = time.monotonic() - began
        self.may_stop = round(holding) == len(self._peers)
        count = round(high) * COUNT_BASE + round(low)
        self._measure_noise(begun, count)
        self._held.step(self._vector[front:], count)
        return self._held_s(seconds)

    def _measure_noise(self, begun: StartedReduction, count: int) -> None:
        """From this worker's sum of gradients, and the total over ``count`` samples."""
        share, rule = begun.samples, self._held.rule
        if begun.gradient is None or not self._measures_noise or self._held.version % EVERY:
            return
        if 0 < share < count and isinstance(rule, Clipping):
            own, mean = rule.squared_norm(begun.gradient, share), rule.squared_norm(self._vector[self._front :], count)
            self.noise.add(own, mean, share=share, batch=count)

    @property
    def _front(self) -> int:
        """Number of elements before the update."""
        return OWN + len(self._peers)

    def _sums(self, group: Group) -> Sums:
        """The sums of one vector, none of them started."""
        front, size = self._front, len(self._held.values)
        if len(self._vector) != front + size:
            self._vector = torch.zeros(front + size, device=self._held.values.device)
        rounded = slice(front, front + self._rounded) if self._rounded else None
        borders = () if rounded is None else (rounded.start, rounded.stop)
        begins = chunk_offsets([front, *self._sizes], borders=borders)
        return Sums(group, self._vector, begins, timeout_s=self._patience_s(), rounded=rounded)

    def _pack(self, stretch: slice, gradient: torch.Tensor | None, samples: int) -> None:
        """Write this worker's part into a section of the vector: zeros for an update without samples."""
        front = self._front
        part = self._vector[max(stretch.start, front) : stretch.stop]
        if gradient is None or not samples:
            part.zero_()
        else:
            part.copy_(gradient[max(stretch.start - front, 0) : stretch.stop - front])
            if self._equally:
                part /= samples
        if not stretch.start:
            self._pack_front(1 if samples and self._equally else samples)

    def _pack_front(self, samples: int) -> None:
        """Write the number of samples, and how long this member's last sum took, into its own element."""
        assert self._meeting is not None
        newest, times = self._link.orders(), [0.0] * len(self._peers)
        times[self._meeting.place.rank] = self._sum_s
        front = [*divmod(samples, COUNT_BASE), float(newest is not None and newest.hold), *times]
        self._vector[: self._front].copy_(torch.tensor(front, dtype=torch.float32))

    def _held_s(self, seconds: list[float]) -> float:
        """The waiting part of the last sum: the transfer takes as long as for the member that arrived last."""
        if min(seconds) > 0.0:
            self._transfers.append(min(seconds))
        return max(0.0, self._sum_s - median(self._transfers)) if self._transfers else 0.0

    def _join(self) -> bool:
        """Whether there is a group, which is created if needed. False: orders have a newer generation."""
        while self._group is None:
            assert self._meeting is not None
            self._group = self._meeting.meet(self._is_over)
            if self._group is None:
                return False
            try:
                self._agree(self._group)
            except GroupBroken:
                self._leave()
        return True

    def _agree(self, group: Group) -> None:
        """Bring all members to the latest version that any of them has."""
        assert self._meeting is not None
        rank, patience_s = self._meeting.place.rank, LONGEST_S
        versions = torch.zeros(group.size, dtype=torch.int64)
        versions[rank] = self._held.version
        group.sum(versions, timeout_s=patience_s)
        reached = versions.tolist()
        if min(reached) == max(reached):
            return
        root = reached.index(max(reached))
        is_root = rank == root
        values = self._held.values if is_root else torch.empty_like(self._held.values)
        group.copy(values, root=root, timeout_s=patience_s)
        state = copy_state(group, self._held.rule.state(), root=root, is_root=is_root, timeout_s=patience_s)
        if not is_root:
            self._held.adopt(values, state, max(reached))

    def _is_over(self, wait_s: float) -> bool:
        """Whether orders have a newer generation, after a short wait.

        Raises:
            Stopped: if the process is asked to end.
        """
        if self._link.stopping.wait(wait_s) if wait_s else self._link.stopping.is_set():
            raise Stopped("asked to end")
        newest: Orders | None = self._link.orders()
        return newest is not None and (newest.incarnation, newest.generation) > self._term

    def _patience_s(self) -> float:
        if not self._iteration_s:
            return LONGEST_S
        return min(max(PATIENCE * self._iteration_s, SHORTEST_S), LONGEST_S)

    def _time_iteration(self) -> None:
        now = time.monotonic()
        if self._pushed_at:
            took = now - self._pushed_at
            self._iteration_s += (took - self._iteration_s) * (SMOOTHING if self._iteration_s else 1.0)
        self._pushed_at = now

    def _leave(self) -> None:
        if self._reduction is not None:  # a sum in progress still writes to this memory
            self._reduction, self._vector = None, torch.zeros(0)
        if self._group is not None:
            self._group.leave()
            self._group = None

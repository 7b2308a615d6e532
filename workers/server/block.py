"""One block: its values, the sum that is growing for its open iteration, and the versions that are given out.

Everything changes under the block's own lock. Sending takes no lock: values that are being read are never written,
so a step is made in place if nobody reads, else on a copy, and a slow reader holds nobody up.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from workers.server.quorum import NOBODY, Quorum, Roster, Verdict
from workers.transport.errors import Stopped
from workers.transport.handshake import Peer
from workers.workloads.shape import Rule

Values = npt.NDArray[np.float32]


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """One version of a block's values. While anybody reads them, they do not change."""

    version: int
    values: Values
    readers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """The sum of one worker's gradients over one block, and the samples that it stands for."""

    term: tuple[int, int]
    peer: Peer
    iteration: int
    samples: int
    total: memoryview
    """The sum itself, as the writable bytes of float32; its memory is the block's once it counts."""


class Block:
    """A slice of the parameters with its quorum.

    Args:
        values: version 0; owned by the block from now on.
        make_rule: what a complete sum does to the values.
        on_missing: told (iteration, rank) of members that left before they had contributed.
    """

    def __init__(
        self,
        values: Values,
        make_rule: Callable[[torch.Tensor], Rule],
        on_missing: Callable[[int, int], None],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._condition = threading.Condition()
        self._values = torch.from_numpy(values)
        self._rule = make_rule(self._values)
        self._on_missing = on_missing
        self._now = now
        self._total = memoryview(bytearray(values.nbytes))
        self._samples = 0
        self._quorum = Quorum()
        self._roster = NOBODY
        self._stopped = False
        self._snapshot = Snapshot(version=0, values=values)

    @property
    def version(self) -> int:
        """How many iterations are closed."""
        return self._quorum.iteration

    @property
    def block_bytes(self) -> int:
        """The size of the values in bytes."""
        return self._values.nbytes

    def appoint(self, roster: Roster) -> None:
        """Let ``roster`` count from now on: a departure may complete the open iteration."""
        with self._condition:
            self._roster = roster
            if self._quorum.appoint(roster):
                self._close()
            self._condition.notify_all()

    def await_term(self, contribution: Contribution) -> float:
        """Wait until the contribution's generation and iteration are here; how long that took.

        Raises:
            Stopped: if the server ends meanwhile.
        """
        with self._condition:
            return self._wait(lambda: self._judge(contribution) is not Verdict.EARLY)

    def contribute(self, contribution: Contribution) -> tuple[Verdict, memoryview]:
        """Count ``contribution``, once; the last one that was owed closes the iteration.

        The memory that comes back is the caller's instead of that of the contribution: the first sum of an
        iteration is kept where it lies, since copying it would cost as much as adding another.
        """
        with self._condition:
            verdict = self._judge(contribution)
            free = contribution.total
            if verdict is Verdict.COUNT:
                free = self._add(contribution)
                if self._quorum.count(contribution.peer):
                    self._close()
            return verdict, free

    def borrow(self, version: int) -> tuple[Snapshot, float]:
        """A snapshot of at least ``version``, and how long it was held until that existed. Give it back.

        Raises:
            Stopped: if the server ends meanwhile.
        """
        with self._condition:
            held_s = self._wait(lambda: self.version >= version)
            self._snapshot.readers += 1
            return self._snapshot, held_s

    def give_back(self, snapshot: Snapshot) -> None:
        """The reader of a borrowed snapshot is done with it."""
        with self._condition:
            snapshot.readers -= 1

    def stop(self) -> None:
        """Let everybody who waits here go with ``Stopped``."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def _wait(self, ready: Callable[[], bool]) -> float:
        """Wait until ``ready``; how long that took, 0.0 where it was at once."""
        if ready():
            return 0.0
        began = self._now()
        self._condition.wait_for(lambda: ready() or self._stopped)
        if self._stopped:
            raise Stopped("the server ends")
        return self._now() - began

    def _judge(self, contribution: Contribution) -> Verdict:
        return self._quorum.judge(self._roster, contribution.term, contribution.peer, contribution.iteration)

    def _add(self, contribution: Contribution) -> memoryview:
        self._samples += contribution.samples
        if not self._quorum.contributed:
            free, self._total = self._total, contribution.total
            return free
        _tensor(self._total).add_(_tensor(contribution.total))
        return contribution.total

    def _close(self) -> None:
        """Apply the sum, give out the new version, open the next iteration."""
        iteration = self._quorum.iteration
        self._leave_to_readers()
        if self._samples:
            self._rule.apply(_tensor(self._total), self._samples)
        for member in self._quorum.close(self._roster):
            self._on_missing(iteration, member.rank)
        self._samples = 0
        self._snapshot = Snapshot(version=self.version, values=self._values.numpy())
        self._condition.notify_all()

    def _leave_to_readers(self) -> None:
        """If somebody still reads the values, go on with a copy; the optimiser keeps its hold on the tensor."""
        if self._snapshot.readers:
            self._values.data = self._values.clone()


def _tensor(memory: memoryview) -> torch.Tensor:
    return torch.frombuffer(memory, dtype=torch.float32)

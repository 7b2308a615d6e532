"""One block: its values, the sum that is growing for its open iteration, and the versions that are given out.

Everything changes under the block's own lock. What is given out is an immutable snapshot of a closed version, so
sending takes no lock and a slow reader holds nobody up.
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
    """One version of a block's values. While anybody reads it, its memory is not used again."""

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
    """The sum itself, as the bytes of float32; only valid during the call."""


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
        self._total = torch.empty_like(self._values)
        self._samples = 0
        self._quorum = Quorum()
        self._roster = NOBODY
        self._stopped = False
        self._snapshot = Snapshot(version=0, values=values.copy())
        self._spare: Values | None = None

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
            self._close_if_complete()
            self._condition.notify_all()

    def await_term(self, contribution: Contribution) -> float:
        """Wait until the contribution's generation and iteration are here; how long that took.

        Raises:
            Stopped: if the server ends meanwhile.
        """
        with self._condition:
            return self._wait(lambda: self._judge(contribution) is not Verdict.EARLY)

    def contribute(self, contribution: Contribution) -> Verdict:
        """Count ``contribution``, once; the last one that was owed closes the iteration."""
        with self._condition:
            verdict = self._judge(contribution)
            if verdict is Verdict.COUNT:
                self._add(contribution)
                self._close_if_complete()
            return verdict

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

    def _add(self, contribution: Contribution) -> None:
        total = torch.frombuffer(contribution.total, dtype=torch.float32)
        if self._quorum.contributed:
            self._total.add_(total)
        else:
            self._total.copy_(total)
        self._samples += contribution.samples
        self._quorum.contributed.add(contribution.peer)

    def _close_if_complete(self) -> None:
        if not self._quorum.complete(self._roster):
            return
        iteration = self._quorum.iteration
        if self._samples:
            self._rule.apply(self._total, self._samples)
        for member in self._quorum.close(self._roster):
            self._on_missing(iteration, member.rank)
        self._samples = 0
        self._publish()
        self._condition.notify_all()

    def _publish(self) -> None:
        """Give out the values from now on; the memory of the snapshot before last is used if nobody reads it."""
        values = np.empty_like(self._snapshot.values) if self._spare is None else self._spare
        np.copyto(values, self._values.numpy())
        self._spare = None if self._snapshot.readers else self._snapshot.values
        self._snapshot = Snapshot(version=self.version, values=values)

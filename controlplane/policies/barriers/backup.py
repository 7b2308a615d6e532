"""Backup workers: all n + b compute every iteration, and the first n with a ready update complete it.

The engine names these n, since servers that chose on their own would disagree; servers commit exactly their updates.
The others drop the iteration and continue with the next. A lost worker counts as one of the backups.
"""

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from controlplane.core.barriers import Progress, Quorum, Release
from controlplane.policies.barriers.bsp import Bsp
from controlplane.policies.catalogue.barriers import BackupParameters
from controlplane.policies.wording import workers


class BackupState(msgspec.Struct, kw_only=True):
    """The workers with an update ready, for iterations that are not complete."""

    ranks: list[int]
    needed: int
    """n: set by the first roster; lower only if fewer workers are left."""
    full: int
    """n of the first roster."""
    ready: dict[int, dict[int, bool]] = {}
    """By iteration, the workers with a ready update; the values are unused. An iteration is removed once its workers
    are named.
    """
    named: int = -1
    """Iterations up to this one have their quorum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A synchronous barrier with redundant workers."""

    name: ClassVar[str] = "backup"
    synchronous: ClassVar[bool] = True
    state_type: ClassVar[type[msgspec.Struct]] = BackupState

    parameters: BackupParameters

    def release(self, progress: Progress) -> dict[int, Release]:
        """As BSP: the servers hold each iteration until the named workers have contributed."""
        return Bsp().release(progress)

    def appoint(self, ranks: list[int], completed: int, state: BackupState | None) -> tuple[BackupState, list[Quorum]]:
        """The first roster sets n: all workers but b, and at least one. It stays while that many are left."""
        if state is not None:
            full, ready, named = state.full, state.ready, state.named
        else:
            full, ready, named = max(1, len(ranks) - self.parameters.backups), {}, completed
        counting = set(ranks)
        left = {iteration: {rank: True for rank in ready[iteration] if rank in counting} for iteration in sorted(ready)}
        state = BackupState(ranks=ranks, needed=min(full, len(ranks)), full=full, ready=left, named=named)
        quorums = [self._name(iteration, state) for iteration in sorted(left)]
        return state, [quorum for quorum in quorums if quorum is not None]

    def computed(self, rank: int, iteration: int, state: BackupState) -> tuple[BackupState, Quorum | None]:
        """The n-th ready worker completes the quorum."""
        if iteration <= state.named:
            return state, None
        state.ready.setdefault(iteration, {})[rank] = True
        return state, self._name(iteration, state)

    def close(self, iteration: int, state: BackupState) -> BackupState:
        """Complete iterations need no more decisions."""
        state.named = max(state.named, iteration)
        state.ready = {number: ready for number, ready in state.ready.items() if number > state.named}
        return state

    def _name(self, iteration: int, state: BackupState) -> Quorum | None:
        ready = state.ready[iteration]
        if len(ready) < state.needed:
            return None
        del state.ready[iteration]
        state.named = max(state.named, iteration)
        late = sorted(set(state.ranks) - set(ready))
        sentence = f"the first {len(ready)} of {len(state.ranks)} workers are ready with iteration {iteration}"
        without = f"; it continues without {workers(late)}" if late else ""
        return Quorum(iteration=iteration, ranks=sorted(ready), reason=sentence + without)

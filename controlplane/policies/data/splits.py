"""A data set in splits: who has which, and how often each sample was processed.

A split is a range of the job's one seeded permutation, and is always processed in a circle from where it stopped (A-BSP
section 3.3.1). So a single number says everything about it: how many samples of it were processed. Over its size, that
is the number of times that every one of its samples was; the rest is how far the present pass has come.
"""

from collections.abc import Mapping, Sequence

import msgspec

from controlplane.core.choices import DataDecision, SplitMove
from controlplane.protocol.base import Value
from controlplane.protocol.orders import Piece


class Split(Value, frozen=True, kw_only=True, array_like=True):
    """A range of the permutation, and what was done with it."""

    start: int
    stop: int
    owner: int
    processed: int = 0
    """Samples of it, each as often as it was processed."""
    counted_from: int = 0
    """``processed`` when counts were last begun anew."""

    @property
    def size(self) -> int:
        """Its samples."""
        return self.stop - self.start

    @property
    def count(self) -> int:
        """Process times of the split, those of its least processed sample (Alg. 2 line 4), since counts began."""
        return (self.processed - self.counted_from) // self.size

    @property
    def cursor(self) -> int:
        """The position of the next sample."""
        return self.start + self.processed % self.size

    def times(self, position: int) -> int:
        """How often that sample was processed in the whole job."""
        return self.processed // self.size + (position < self.cursor)


class SplitsState(Value, frozen=True, kw_only=True):
    """All splits, by number."""

    splits: list[Split] = []

    def owned(self, rank: int) -> list[int]:
        """The numbers of a worker's splits."""
        return [number for number, split in enumerate(self.splits) if split.owner == rank]


def cut(samples: int, ranks: Sequence[int], per_worker: int) -> SplitsState:
    """As many splits for each worker, of sizes at most one apart, neighbours together.

    Raises:
        ValueError: where there are fewer samples than splits, or no worker.
    """
    order = sorted(ranks)
    count = len(order) * per_worker
    if not order or samples < count:
        raise ValueError(f"{samples} samples cannot be cut: found {count} splits, expected 1 to {samples}")
    edges = [samples * number // count for number in range(count + 1)]
    return SplitsState(
        splits=[
            Split(start=edges[number], stop=edges[number + 1], owner=order[number // per_worker])
            for number in range(count)
        ]
    )


def draw(share: int, rank: int, state: SplitsState) -> list[Piece]:
    """The next ``share`` samples of a worker: the least processed split first, each to the end of its pass.

    A share above the worker's whole data goes round again.

    Raises:
        ValueError: where the worker has a share and no split.
    """
    own = {number: state.splits[number] for number in state.owned(rank)}
    if share and not own:
        raise ValueError(f"w{rank}: found no split to draw {share} samples from, expected at least one")
    pieces: list[Piece] = []
    while share > 0:
        number = min(own, key=lambda number: (own[number].count, number))
        split = own[number]
        taken = min(share, split.stop - split.cursor)
        pieces.append(Piece(split=number, start=split.cursor, stop=split.cursor + taken))
        own[number] = msgspec.structs.replace(split, processed=split.processed + taken)
        share -= taken
    return pieces


def advance(processed: Mapping[int, int], state: SplitsState) -> SplitsState:
    """The state after each worker has processed so many samples from its next ones on."""
    splits = list(state.splits)
    for rank in sorted(processed):
        for piece in draw(processed[rank], rank, state):
            split = splits[piece.split]
            splits[piece.split] = msgspec.structs.replace(split, processed=split.processed + piece.stop - piece.start)
    return SplitsState(splits=splits)


def give(state: SplitsState, takers: Mapping[int, int]) -> tuple[SplitsState, list[SplitMove]]:
    """Splits change hands: ``takers`` is the new owner of each number. And what must get from machine to machine."""
    moves = [
        SplitMove(
            split=number,
            giver=state.splits[number].owner,
            taker=takers[number],
            start=state.splits[number].start,
            stop=state.splits[number].stop,
        )
        for number in sorted(takers)
        if state.splits[number].owner != takers[number]
    ]
    splits = [
        msgspec.structs.replace(split, owner=takers.get(number, split.owner))
        for number, split in enumerate(state.splits)
    ]
    return SplitsState(splits=splits), moves


def count_anew(state: SplitsState) -> SplitsState:
    """Counts begin at 0; what was processed stays known."""
    return SplitsState(splits=[msgspec.structs.replace(split, counted_from=split.processed) for split in state.splits])


def take_over(ranks: Sequence[int], state: SplitsState) -> tuple[SplitsState, DataDecision]:
    """A new roster: splits of those who left go to who has fewest samples, and newcomers are given some.

    A newcomer takes from whoever has most, as long as that leaves the giver with no less than the newcomer.
    """
    order = sorted(ranks)
    if not order:
        raise ValueError(f"{len(state.splits)} splits have no worker: found an empty roster, expected at least one")
    owner = {number: split.owner for number, split in enumerate(state.splits)}
    held = {rank: sum(state.splits[number].size for number in state.owned(rank)) for rank in order}
    takers: dict[int, int] = {}

    def hand(number: int, taker: int) -> None:
        held[taker] += state.splits[number].size
        if owner[number] in held:
            held[owner[number]] -= state.splits[number].size
        owner[number] = takers[number] = taker

    for number in [number for number in owner if owner[number] not in held]:
        hand(number, min(order, key=lambda rank: (held[rank], rank)))
    for newcomer in [rank for rank in order if not held[rank]]:
        while True:
            giver = max(order, key=lambda rank: (held[rank], -rank))
            number = max(number for number in owner if owner[number] == giver)
            if held[giver] - state.splits[number].size < held[newcomer] + state.splits[number].size:
                break
            hand(number, newcomer)
    moved, moves = give(state, takers)
    return moved, DataDecision(moves=moves, reason=_taken_over(moves, len(order)))


def _taken_over(moves: Sequence[SplitMove], workers: int) -> str:
    if not moves:
        return f"all splits stay with their {workers} workers"
    samples = sum(move.stop - move.start for move in moves)
    return f"{len(moves)} splits ({samples:,} samples) change hands for a roster of {workers} workers"

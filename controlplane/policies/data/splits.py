"""A data set in splits: which worker has which split, and how often each sample was processed.

A split is a range of the job's seeded permutation, and is always processed cyclically from where it stopped (A-BSP
section 3.3.1). A single number describes its progress: how many of its samples were processed. Divided by its size,
that is the number of complete passes; the remainder is the position in the present pass. A split can be divided if a
worker would have none: the progress of both parts is known exactly.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from controlplane.core.choices import DataDecision, SplitMove
from controlplane.protocol.base import Value
from controlplane.protocol.orders import Piece


class Split(Value, frozen=True, kw_only=True, array_like=True):
    """A range of the permutation, and its progress."""

    start: int
    stop: int
    owner: int
    processed: int = 0
    """Processed samples; repeated ones count each time."""
    counted_from: int = 0
    """``processed`` when counts were last restarted."""

    @property
    def size(self) -> int:
        """The number of its samples."""
        return self.stop - self.start

    @property
    def count(self) -> int:
        """Process count of the split, that of its least processed sample (Alg. 2 line 4), since counts were last
        restarted.
        """
        return (self.processed - self.counted_from) // self.size

    @property
    def cursor(self) -> int:
        """The position of the next sample."""
        return self.start + self.processed % self.size

    def reached(self, position: int, processed: int) -> int:
        """How many of ``processed`` samples are before ``position``."""
        passes, further = divmod(processed, self.size)
        return passes * (position - self.start) + min(further, position - self.start)

    def times(self, position: int) -> int:
        """How often the sample at ``position`` was processed in the whole job."""
        return self.processed // self.size + (position < self.cursor)


class SplitsState(Value, frozen=True, kw_only=True):
    """All splits, by number."""

    splits: list[Split] = []

    def owned(self, rank: int) -> list[int]:
        """The numbers of a worker's splits."""
        return [number for number, split in enumerate(self.splits) if split.owner == rank]


def cut(samples: int, ranks: Sequence[int], per_worker: int) -> SplitsState:
    """``per_worker`` adjacent splits for each worker, with sizes that differ by at most one; fewer if samples are few.

    Raises:
        ValueError: if there are fewer samples than workers, or no worker.
    """
    order = sorted(ranks)
    if not order or samples < len(order):
        raise ValueError(f"{samples} samples cannot be divided among {len(order)} workers: each needs at least one")
    per_worker = min(per_worker, samples // len(order))
    count = len(order) * per_worker
    edges = [samples * number // count for number in range(count + 1)]
    return SplitsState(
        splits=[
            Split(start=edges[number], stop=edges[number + 1], owner=order[number // per_worker])
            for number in range(count)
        ]
    )


def draw(share: int, rank: int, state: SplitsState) -> list[Piece]:
    """The next ``share`` samples of a worker: the least processed split first, each to the end of its pass.

    No sample repeats before all of the worker's samples were used; a share larger than its data begins another pass.

    Raises:
        ValueError: if the worker has a share and no split.
    """
    own = {number: state.splits[number] for number in state.owned(rank)}
    if share and not own:
        raise ValueError(f"w{rank}: found no split to draw {share} samples from, expected at least one")
    pieces: list[Piece] = []
    while share > 0:
        left = {number: split.size for number, split in own.items()}
        while share > 0 and left:
            number = min(left, key=lambda number: (own[number].count, number))
            split = own[number]
            taken = min(share, split.stop - split.cursor, left[number])
            pieces.append(Piece(split=number, start=split.cursor, stop=split.cursor + taken))
            own[number] = msgspec.structs.replace(split, processed=split.processed + taken)
            left[number] -= taken
            if not left[number]:
                del left[number]
            share -= taken
    return pieces


def advance(done: Iterable[Piece], state: SplitsState) -> SplitsState:
    """The state after these samples were processed, independently of their owner and of later splits."""
    splits = list(state.splits)
    for piece in done:
        for number, split in enumerate(splits):
            count = min(piece.stop, split.stop) - max(piece.start, split.start)
            if count > 0:
                splits[number] = msgspec.structs.replace(split, processed=split.processed + count)
    return SplitsState(splits=splits)


def sizes(state: SplitsState) -> dict[int, int]:
    """How many samples each worker has."""
    held: dict[int, int] = {}
    for split in state.splits:
        held[split.owner] = held.get(split.owner, 0) + split.size
    return held


def divide(state: SplitsState, number: int, *, taker: int) -> SplitsState:
    """Give the second half of a split to another worker, as a new split behind the first half."""
    split = state.splits[number]
    middle = (split.start + split.stop) // 2
    before = split.reached(middle, split.processed), split.reached(middle, split.counted_from)
    first = msgspec.structs.replace(split, stop=middle, processed=before[0], counted_from=before[1])
    second = msgspec.structs.replace(
        split,
        start=middle,
        owner=taker,
        processed=split.processed - before[0],
        counted_from=split.counted_from - before[1],
    )
    return SplitsState(splits=[*state.splits[:number], first, second, *state.splits[number + 1 :]])


def give(state: SplitsState, takers: Mapping[int, int]) -> tuple[SplitsState, list[SplitMove]]:
    """Move splits: ``takers`` is the new owner of each split number. Also returns the data to copy between machines."""
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


def reset_counts(state: SplitsState) -> SplitsState:
    """Restart counts at 0; the progress of splits stays."""
    return SplitsState(splits=[msgspec.structs.replace(split, counted_from=split.processed) for split in state.splits])


def take_over(ranks: Sequence[int], state: SplitsState) -> tuple[SplitsState, DataDecision]:
    """Adopt a new roster: splits of workers that left go to those with the fewest samples, and new workers get some.

    A new worker takes from the worker with the most samples, as long as the giver keeps at least as many; if it would
    get none that way, the largest split of the worker with the most samples is divided.

    Raises:
        ValueError: if there are fewer samples than workers, or no worker.
    """
    order = sorted(ranks)
    samples = sum(split.size for split in state.splits)
    if not order or samples < len(order):
        raise ValueError(f"{samples} samples cannot be divided among {len(order)} workers: each needs at least one")
    before = state
    orphans = [number for number, split in enumerate(state.splits) if split.owner not in order]
    for number in orphans:
        held = sizes(state)
        state = _hand(state, number, min(order, key=lambda rank: (held.get(rank, 0), rank)))
    for newcomer in [rank for rank in order if rank not in sizes(state)]:
        state = _provide(state, newcomer)
    moves = _moves(before, state)
    return state, DataDecision(moves=moves, reason=_taken_over(moves, len(order)))


def _provide(state: SplitsState, newcomer: int) -> SplitsState:
    """Whole splits of the worker with the most samples, or else half a split."""
    while True:
        held = sizes(state)
        own = held.pop(newcomer, 0)
        giver = max(held, key=lambda rank: (held[rank], -rank))
        number = max(state.owned(giver))
        size = state.splits[number].size
        if held[giver] - size < own + size:
            break
        state = _hand(state, number, newcomer)
    if own:
        return state
    # By the pigeonhole principle some worker has two samples; with splits of one sample, one was already moved above.
    number = max(state.owned(giver), key=lambda number: (state.splits[number].size, number))
    return divide(state, number, taker=newcomer)


def _hand(state: SplitsState, number: int, taker: int) -> SplitsState:
    splits = list(state.splits)
    splits[number] = msgspec.structs.replace(splits[number], owner=taker)
    return SplitsState(splits=splits)


def _moves(before: SplitsState, after: SplitsState) -> list[SplitMove]:
    """Which samples have a new owner; in between, splits were at most divided."""
    owners = [(split.stop, split.owner) for split in before.splits]
    moves, at = [], 0
    for number, split in enumerate(after.splits):
        while owners[at][0] <= split.start:
            at += 1
        if (giver := owners[at][1]) != split.owner:
            moves.append(SplitMove(split=number, giver=giver, taker=split.owner, start=split.start, stop=split.stop))
    return moves


def _taken_over(moves: Sequence[SplitMove], workers: int) -> str:
    if not moves:
        return f"all splits stay with their {workers} workers"
    samples = sum(move.stop - move.start for move in moves)
    return f"{len(moves)} splits ({samples:,} samples) change hands for a roster of {workers} workers"

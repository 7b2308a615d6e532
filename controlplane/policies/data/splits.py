"""A data set in splits: which worker has which, and how often each sample was processed.

A split is a range of the job's one seeded permutation, and is always processed in a circle from where it stopped (A-BSP
section 3.3.1). So a single number describes it: how many samples of it were processed. Over its size, that
is the number of times that every one of its samples was; the rest is how far the present pass has come.

A split can be divided where a worker would have none: both parts know exactly what was processed of them.
"""

from collections.abc import Iterable, Mapping, Sequence

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
    """``processed`` when counts were last restarted."""

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

    def reached(self, position: int, processed: int) -> int:
        """How many of ``processed`` samples of it lie before ``position``."""
        passes, further = divmod(processed, self.size)
        return passes * (position - self.start) + min(further, position - self.start)

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
    """As many splits for each worker, of sizes at most one apart, neighbours together; fewer where samples are few.

    Raises:
        ValueError: where there are fewer samples than workers, or no worker.
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

    No sample comes twice before each of the worker's came once; a share above its whole data goes round again.

    Raises:
        ValueError: where the worker has a share and no split.
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


def reset_counts(state: SplitsState) -> SplitsState:
    """Counts begin at 0; what was processed stays known."""
    return SplitsState(splits=[msgspec.structs.replace(split, counted_from=split.processed) for split in state.splits])


def take_over(ranks: Sequence[int], state: SplitsState) -> tuple[SplitsState, DataDecision]:
    """A new roster: splits of workers that left go to those with fewest samples, and newcomers get some.

    A newcomer takes from the worker that has most, as long as that leaves the giver with no less than the newcomer;
    where that leaves it with nothing, the largest split of the worker that has most is divided for it.

    Raises:
        ValueError: where there are fewer samples than workers, or no worker.
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
    """Whole splits of the worker that has most, or else half a split."""
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
    # By pigeonhole some worker has two samples; in splits of one each, one of them was handed over above.
    number = max(state.owned(giver), key=lambda number: (state.splits[number].size, number))
    return divide(state, number, taker=newcomer)


def _hand(state: SplitsState, number: int, taker: int) -> SplitsState:
    splits = list(state.splits)
    splits[number] = msgspec.structs.replace(splits[number], owner=taker)
    return SplitsState(splits=splits)


def _moves(before: SplitsState, after: SplitsState) -> list[SplitMove]:
    """Which samples have another worker now; splits were at most divided in between."""
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

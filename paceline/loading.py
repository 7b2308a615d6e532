"""The DataLoader of one rank, whose batches follow the agreed shares even if it prefetches.

An iteration consists of ``accumulate`` micro-batches, and ends with ``pacer.step``. Each rank yields the same number of
batches. A rank without a sample in a batch (the last batch of a pass may have fewer samples than there are ranks)
yields samples of other ranks with weight 0.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs
from torch.utils.data import DataLoader, Sampler

from controlplane.protocol.agreement import Timeline
from controlplane.protocol.dividing import Pass, Span, divide, parts
from paceline.control import RankState
from paceline.marks import Part
from paceline.samples import Order

if TYPE_CHECKING:
    from paceline.pacer import Pacer

GHOST: Final = 2
"""Number of samples in a batch with weight 0; batch norm does not accept a single one."""


MOST_AHEAD: Final = 8
"""Batches that a script may take before it computes the first one, or those of an iteration where they are more."""


class Draw(NamedTuple):
    """One batch that a loader has drawn."""

    iteration: int
    micro: int
    """Index of the iteration's micro-batch."""
    size: int
    """Number of samples; 0: the batch has weight 0."""
    position: int
    """Position of the rank's first sample of the iteration in the job's permutations."""
    sizes: list[int]
    """Samples of the whole iteration, by rank."""
    begin: int
    """Position in the pass at which the iteration begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Parameters of a loader's passes."""

    batch_size: int
    """Samples of one batch of one rank, with equal shares."""
    seed: int = 0
    accumulate: int = 1
    multiple: int = 1
    shuffle: bool = True
    drop_last: bool = False

    @property
    def share(self) -> int:
        """Samples of one iteration of one rank, with equal shares."""
        return self.batch_size * self.accumulate

    def rank_state(self, samples: int, device: str, iteration: int | None, *, scales_lr: bool = False) -> RankState:
        """The state that a hello reports, for a dataset of this many samples."""
        return RankState(
            share=self.share,
            samples=samples,
            multiple=self.multiple * self.accumulate,
            micro_batch=self.batch_size if self.accumulate > 1 else None,
            device=device,
            iteration=iteration,
            scales_lr=scales_lr,
        )


class Batches(Sampler[list[int]]):
    """The batch sampler: the samples of each batch of a pass. ``draws``: batches that were
    drawn but not yet yielded.
    """

    def __init__(self, plan: Plan, samples: int, *, rank: int, world: int) -> None:
        self.plan, self.samples = plan, samples
        self._rank, self._accumulate, self._multiple = rank, plan.accumulate, plan.multiple * plan.accumulate
        self._order = Order(seed=plan.seed, samples=samples, shuffle=plan.shuffle)
        self._count = 0
        self._divided: tuple[list[int], int, list[int], int] | None = None
        self.draws: deque[Draw] = deque()
        batch = plan.share * world
        self._pass = Pass(number=0, first=0, samples=samples, batch=batch, drop_last=plan.drop_last)
        self._timeline = Timeline([plan.share] * world)

    def begin(self, each: Pass, seed: int, multiple: int, timeline: Timeline) -> None:
        """Prepare to draw that pass, with as many samples as all ranks have."""
        if (each.samples, seed) != (self._order.samples, self._order.seed):
            self._order = Order(seed=seed, samples=each.samples, shuffle=self.plan.shuffle)
        self._pass, self._timeline, self._multiple, self._count = each, timeline, multiple, 0
        self._divided = None
        self.draws.clear()

    def _division(self, shares: list[int], size: int) -> tuple[list[int], int]:
        """The samples by rank, and how many belong to ranks before this one; computed once per change."""
        if self._divided is None or self._divided[:2] != (shares, size):
            sizes = divide(shares, size, self._multiple)
            self._divided = shares, size, sizes, sum(sizes[: self._rank])
        return self._divided[2:]

    @property
    def promised(self) -> int:
        """The last iteration that is drawn before the current one has ended."""
        return self.promised_with(0)

    def promised_with(self, more: int) -> int:
        """The same, with this many more iterations drawn."""
        each, ahead = self._pass, self._count + self._accumulate - 1
        last = each.first + (ahead - 1) // self._accumulate + more
        return max(each.first, min(each.first + each.iterations - 1, last))

    @property
    def drawn(self) -> int:
        """The last iteration whose drawing has started."""
        return self._pass.first + (self._count - 1) // self._accumulate

    @property
    def next_iteration(self) -> int:
        """The iteration of the next batch that is drawn."""
        return self._pass.first + self._count // self._accumulate

    @property
    def left(self) -> int:
        """Batches left in the pass that is drawn next."""
        return self._pass.iterations * self._accumulate

    def __len__(self) -> int:
        """Number of batches in a whole pass."""
        return structs.replace(self._pass, begin=0).iterations * self._accumulate

    def __iter__(self) -> Iterator[list[int]]:
        each = self._pass
        for iteration in range(each.first, each.first + each.iterations):
            span = each.span(iteration)
            sizes, before = self._division(self._timeline.shares(iteration), span.size)
            own = Span(span.start + before, sizes[self._rank])
            for micro, part in enumerate(parts(own, self._accumulate)):
                self._count += 1
                position = each.number * each.samples + own.start
                self.draws.append(Draw(iteration, micro, part.size, position, sizes, span.start))
                ghost = Span(max(0, min(span.start, each.samples - GHOST)), min(GHOST, each.samples))
                yield self._order.indices(each.number, part if part.size else ghost)


class Passing:
    """What loaders of a pacer have in common: their position is the job's."""

    pacer: "Pacer"
    plan: Plan
    batches: Batches

    def __len__(self) -> int:
        """Number of batches in a whole pass, the same on each rank."""
        return len(self.batches)

    @property
    def samples(self) -> int:
        """Number of samples in the dataset."""
        return self.batches.samples

    @property
    def epoch(self) -> int:
        """The current pass over these samples, or the next one."""
        return self.pacer.epoch_of(self)

    def set_epoch(self, epoch: int) -> None:
        """Does nothing: each pass has its own permutation."""

    def state_dict(self) -> dict[str, Any]:
        """The job's position after the last ``step``; the same at each rank."""
        return self.pacer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from the saved position; call it before the first batch, at each rank."""
        self.pacer.load_state_dict(state)

    @property
    def drawn(self) -> int:
        """The last iteration whose samples were drawn."""
        return self.batches.drawn

    def coming(self) -> int:
        """Samples for the next iteration, if only this rank knows them."""
        return 0


class Loader(Passing, DataLoader[Any]):
    """The batches of a rank in every pass; created by ``pacer.loader``. Otherwise behaves as a DataLoader.

    A script may take batches before it computes the previous ones, for example to copy them to a device in advance. The
    first forward of a watched module in a pass shows how many. They are used in the order in which they were taken.
    """

    def __init__(self, pacer: "Pacer", dataset: Any, plan: Plan, options: dict[str, Any]) -> None:
        self.pacer, self.plan = pacer, plan
        self._taken: deque[Draw] = deque()
        """Batches that the script has and does not compute yet."""
        self._ahead = self._slack = 0
        """How many these are while one is computed; and the iterations that are drawn by that before a sum is read."""
        self._is_in_use = self._is_drawn_out = False
        self.batches = Batches(plan, len(dataset), rank=pacer.rank, world=pacer.world)
        super().__init__(dataset, batch_sampler=self.batches, **options)

    @property
    def promised(self) -> int:
        """The last iteration that is drawn before the current one has ended."""
        return self.batches.promised_with(self._slack)

    def __iter__(self) -> Any:
        pacer, batches = self.pacer, self.batches
        batches.begin(pacer.begin_pass(self), pacer.cursor.data.seed, pacer.multiple, pacer.timeline)
        return pacer.turns.run(self._pass(batches, super().__iter__()))

    def finish(self) -> None:
        """A pass begins after this loader's: use the batches of a script of which neither a forward nor a step was
        noticed.
        """
        while self._taken and self.pacer.awaits_forward:
            self._is_in_use = False
            self.use_next()

    def _pass(self, batches: Batches, given: Iterator[Any]) -> Iterator[Any]:
        pacer = self.pacer
        self._taken.clear()
        self._ahead = 0
        self._is_in_use = self._is_drawn_out = False
        for at in range(batches.left):
            is_held_back = self._await(at)
            batch = next(given)
            self._taken.append(batches.draws.popleft())
            if is_held_back:
                pacer.mark(Part.DATA)
                pacer.enter("compute")
            else:
                self._use()
            yield batch
        self._is_drawn_out = True
        if not (self._ahead or pacer.awaits_forward):
            pacer.end_pass()

    def _await(self, at: int) -> bool:
        """Prepare to take the pass' batch ``at``; whether it is used later."""
        pacer = self.pacer
        if at and pacer.awaits_forward and self._ahead < max(MOST_AHEAD, self.plan.accumulate):
            self._ahead += 1
        elif not self._ahead:
            pacer.awaiting_batch()
            return False
        else:
            if len(self._taken) >= self._ahead:
                self._is_in_use = False  # the script continues without ``step``
            self.use_next()
        pacer.open(pacer.iteration, outside=True)
        self._slack += pacer.overdraw(self.batches.next_iteration)
        return True

    def _use(self) -> None:
        self._is_in_use = True
        self.pacer.has_batch(self._taken.popleft())

    def use_next(self) -> None:
        """The batch that was taken first is computed next, unless the one before is still computed."""
        if self._ahead and not self._is_in_use and self._taken:
            self.pacer.awaiting_batch()
            self._use()

    def used(self) -> None:
        """``step`` was called for the batch in use."""
        self._is_in_use = False
        if self._is_drawn_out and not self._taken:
            self.pacer.end_pass()

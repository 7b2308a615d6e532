"""The loader of a rank whose dataset is an iterable stream: an iteration takes the next samples, as many as its share.

Only the rank that reads a stream knows when it ends. So each rank prefetches the samples of the next iteration before
it begins, and sends their number in the sum that all ranks make anyway. A rank whose stream has ended continues with
batches of weight 0 until all streams have ended: every rank yields the same number of batches, and no sample is
dropped.
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from torch.utils.data import DataLoader, default_collate
from torch.utils.data._utils.pin_memory import pin_memory

from controlplane.protocol.dividing import Span, parts
from paceline.errors import CannotAttach
from paceline.loading import GHOST, Draw, Plan

if TYPE_CHECKING:
    from paceline.pacer import Pacer

TOGETHER: Final = 32
"""Number of samples that a worker process transfers at once: one by one, each takes 80 µs.

The order of samples depends on it. It is the same for every batch size, since a saved state counts the samples taken.
"""


class StreamLoader(DataLoader[Any]):
    """The batches of a rank, assembled from single samples of its stream; created by ``pacer.loader``."""

    samples = 0

    def __init__(self, pacer: "Pacer", dataset: Any, plan: Plan, options: dict[str, Any]) -> None:
        self.pacer, self.plan = pacer, plan
        self.collate = options.pop("collate_fn", None) or default_collate
        self.pins = bool(options.pop("pin_memory", False))
        self._next: list[Any] = []
        """Samples for the next iteration."""
        self.promised = -1
        """The last iteration whose samples are read before the current one has ended."""
        self._has_workers = bool(options.get("num_workers"))
        super().__init__(dataset, batch_size=TOGETHER if self._has_workers else None, collate_fn=_same, **options)

    def __len__(self) -> int:
        raise TypeError("the length of a stream is unknown before its end")

    @property
    def epoch(self) -> int:
        """The current pass over this stream, or the next one."""
        return self.pacer.epoch_of(self)

    def set_epoch(self, epoch: int) -> None:
        """Passed on to the dataset, if it has such a method."""
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The job's position after the last ``step``; the same on each rank."""
        return self.pacer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from the saved position in each rank's stream; call it before the first batch, on each rank.

        With another number of ranks the pass begins anew.
        """
        self.pacer.load_state_dict(state)

    @property
    def drawn(self) -> int:
        """The last iteration whose samples were read."""
        return self.promised

    def coming(self) -> int:
        """Samples that are available for the next iteration."""
        return len(self._next)

    def use_next(self) -> None:
        """A watched module computes, or ``step`` was called."""

    def used(self) -> None:
        """``step`` was called for the batch in use."""

    def __iter__(self) -> Any:
        self.pacer.begin_pass(self)
        stream = super().__iter__()
        return self.pacer.turns.run(self._pass(chain.from_iterable(stream) if self._has_workers else stream))

    def finish(self) -> None:
        """A pass begins after this loader's: each of its batches was used."""

    def _pass(self, stream: Iterator[Any]) -> Iterator[Any]:
        pacer = self.pacer
        for _ in islice(stream, pacer.cursor.taken[pacer.rank]):
            pass  # taken before the restart
        self._read(stream, pacer.iteration)
        sizes = pacer.agree_on(len(self._next))
        if not all(sizes) and not sum(pacer.cursor.taken):
            empty = ", ".join(str(rank) for rank, size in enumerate(sizes) if not size)
            raise CannotAttach(f"the streams of ranks {empty} have no sample: give each rank some")
        ghost: list[Any] = []
        while self._continues(sizes):
            pacer.awaiting_batch()
            iteration, samples = pacer.iteration, self._next
            ghost = samples[:GHOST] or ghost
            if not ghost:
                raise CannotAttach(f"the stream of rank {pacer.rank} ended before the saved position: start a new pass")
            for micro, part in enumerate(parts(Span(0, len(samples)), self.plan.accumulate)):
                if micro:
                    pacer.awaiting_batch()
                else:
                    self._read(stream, iteration + 1)
                batch = self.collate(samples[part.start : part.start + part.size] or ghost)
                begin = sum(pacer.cursor.taken)
                pacer.has_batch(Draw(iteration, micro, part.size, begin + sum(sizes[: pacer.rank]), sizes, begin))
                if self.pins:
                    batch = pin_memory(batch)  # type: ignore[no-untyped-call]
                yield batch
                if pacer.awaits_forward:
                    pacer.give_up(
                        "the script takes a batch of a stream before it has computed the one before, whose size the"
                        " next one depends on; take each batch after the step of the one before"
                    )
            pacer.end_unless_ended()
            sizes = pacer.coming_sizes
        pacer.end_pass()

    def _continues(self, sizes: list[int]) -> bool:
        return sum(sizes) >= (self.pacer.cursor.batch if self.plan.drop_last else 1)

    def _read(self, stream: Iterator[Any], iteration: int) -> None:
        self.promised = iteration
        self._next = list(islice(stream, self.pacer.timeline.shares(iteration)[self.pacer.rank]))


def _same(sample: Any) -> Any:
    return sample

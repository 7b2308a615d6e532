"""The methods of a pacer that create loaders and batch samplers, and the position in their data."""

import logging
from typing import TYPE_CHECKING, Any

from paceline.control import Control
from paceline.current import AnyLoader, Current
from paceline.cursor import Cursor, Data
from paceline.errors import CannotAttach
from paceline.forwards import Forwards

if TYPE_CHECKING:
    from paceline.loading import Passing
    from paceline.sampling import BatchSampler

log = logging.getLogger("paceline")


class Passes(Current):
    """Creates the loaders of a pacer, and keeps their position.

    Args:
        rank: this rank.
        world: number of ranks.
        control: receives reports about an iteration that does not end.
    """

    def __init__(self, rank: int, world: int, control: Control | None) -> None:
        super().__init__(rank, world, control)
        self._forwards = Forwards(self._next_batch)
        self._control, self.cursor = control, Cursor(world)
        self._passed_over: list[str] = []
        """Why loaders of a library are not changed."""
        self._logged_sentences: set[str] = set()

    def _next_batch(self) -> None:
        """Called before a watched module's forward, and by ``step``: the batch that was taken first is in use."""

    def loader(
        self,
        dataset: Any,
        batch_size: int = 1,
        *,
        seed: int = 0,
        accumulate: int = 1,
        multiple: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
        **options: Any,
    ) -> "AnyLoader":
        """Return the batches of this rank: a ``DataLoader`` whose batches follow the shares.

        Args:
            dataset: or a ``DataLoader``, whose batch size, order and options are kept. An iterable dataset yields the
                samples of this rank only, one by one.
            batch_size: as in ``DataLoader``: of one rank and one backward pass, with equal shares.
            seed: of the passes' permutations.
            accumulate: batches per iteration, between two steps of the optimizer.
            multiple: the number of samples in a batch is a multiple of this, except in the last batch of a pass.
            shuffle: whether each pass has its own order.
            drop_last: whether a smaller iteration at the end of a pass is dropped.
            options: of ``DataLoader``.

        Raises:
            CannotAttach: if a value cannot be used.
        """
        from torch.utils.data import IterableDataset

        from paceline.given import understood
        from paceline.loading import Loader
        from paceline.streams import StreamLoader

        plan = {"seed": seed, "accumulate": accumulate, "multiple": multiple, "shuffle": shuffle}
        plan |= {"batch_size": batch_size, "drop_last": drop_last}
        data, made, options = understood(dataset, plan, options)
        pacer: Any = self
        kind: Any = StreamLoader if isinstance(data, IterableDataset) else Loader
        loader: AnyLoader = kind(pacer, data, made, options)
        return loader

    def batch_sampler(
        self,
        length: int,
        *,
        batch_size: int = 1,
        seed: int = 0,
        accumulate: int = 1,
        multiple: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> "BatchSampler":
        """Return the batches of this rank as lists of indices, for the script's own DataLoader (``batch_sampler=``).

        Call ``step`` after each batch, and train with the watched module's forward.

        Args:
            length: number of samples in the dataset. The other arguments are those of ``loader``.
            batch_size: of one rank and one backward pass, with equal shares.
            seed: of the passes' permutations.
            accumulate: batches per iteration.
            multiple: the number of samples in a batch is a multiple of this.
            shuffle: whether each pass has its own order.
            drop_last: whether a smaller iteration at the end of a pass is dropped.

        Raises:
            CannotAttach: if a value cannot be used.
        """
        from paceline.given import checked
        from paceline.sampling import BatchSampler

        plan = {"batch_size": batch_size, "seed": seed, "accumulate": accumulate, "multiple": multiple}
        plan |= {"shuffle": shuffle, "drop_last": drop_last}
        self._forwards.follow()
        pacer: Any = self
        return BatchSampler(pacer, length, checked("batch_sampler", plan))

    @property
    def iteration(self) -> int:
        """The next iteration, or the current one."""
        return self.cursor.iteration

    @property
    def epoch(self) -> int:
        """The current pass of the loader that was used last, or the next one."""
        return self.cursor.epoch

    def epoch_of(self, loader: "AnyLoader | Passing") -> int:
        """The current pass of this loader, or its next one."""
        if loader is self._loader:
            return self.cursor.epoch
        return self.cursor.epoch_of(Data(loader.samples, loader.plan.seed))

    def state_dict(self) -> dict[str, Any]:
        """The job's position after the last ``step``; the same on each rank. It is valid for any number of ranks, but
        that in streams only for the same number.
        """
        return self.cursor.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from the saved position; call it before the first batch, at each rank.

        Raises:
            CannotAttach: if training has begun.
        """
        if self._loader is not None:
            raise CannotAttach("load_state_dict(): batches were handed out already; load the state before the first")
        self.cursor.load(state)

    def passed_over(self, reason: str) -> None:
        """A library's loader is not changed; logged if the script trains without a loader of Paceline's."""
        self._passed_over.append(reason)

    def _explain_unpaced(self) -> None:
        if self._loader is None and self._control is not None:
            cures = [f"left as it is: {reason}" for reason in dict.fromkeys(self._passed_over)]
            self._say(
                "step() was called, but no batch came by way of pacer.loader() or pacer.batch_sampler(), so shares stay"
                f" equal and nothing is reported; {'; '.join(cures) or 'pass the DataLoader to pacer.loader()'}"
            )

    def _say(self, sentence: str) -> None:
        """Log once, on one rank, what all ranks would log."""
        if sentence not in self._logged_sentences:
            self._logged_sentences.add(sentence)
            log.log(logging.WARNING if self.rank == 0 else logging.INFO, "paceline: %s", sentence)

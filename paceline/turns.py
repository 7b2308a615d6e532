"""One pass at a time: a pacer has one position, so a pass of another loader begins only after the one under way."""

from collections.abc import Iterator
from typing import Any

from paceline.errors import CannotAttach

CURE = (
    "for evaluation, use a DataLoader that pacer.loader() was not given; to train on several data sets at once, give"
    " it one that joins them"
)


class Turns:
    """Which pass may yield batches: the one that began last."""

    def __init__(self) -> None:
        self.number = 0
        """Passes that have begun."""
        self._is_under_way = False

    def begin(self, samples: int, *, follows: bool) -> None:
        """Begin a pass; ``follows``: it is of the same loader as the one before, or that one is over.

        Raises:
            CannotAttach: if neither is true, and the script still has the iterator of the one before.
        """
        if self._is_under_way and not follows:
            raise CannotAttach(
                f"loader(): a pass over {samples or 'a stream of'} samples would begin within one of another loader,"
                f" and both would move the position in the data; {CURE}; if that pass was left, delete its iterator"
            )
        self.number += 1
        self._is_under_way = False

    def enter(self, number: int) -> None:
        """That pass yields a batch.

        Raises:
            CannotAttach: if another one has begun since.
        """
        if number != self.number:
            raise CannotAttach(
                f"loader(): a pass continues after another one has begun, and there is one position in the data; {CURE}"
            )
        self._is_under_way = True

    def leave(self, number: int) -> None:
        """That pass yields no more batches."""
        if number == self.number:
            self._is_under_way = False

    def run(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches of the pass that has begun now."""
        return self._run(batches, self.number)

    def _run(self, batches: Iterator[Any], number: int) -> Iterator[Any]:
        try:
            self.enter(number)
            for batch in batches:
                yield batch
                self.enter(number)
        finally:
            self.leave(number)

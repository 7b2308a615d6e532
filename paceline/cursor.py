"""A job's position in its iterations and passes: the same at each rank, and saved with the script's state."""

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.protocol.dividing import Pass


class Cursor:
    """Advances with each finished iteration."""

    def __init__(self, world: int) -> None:
        self._world = world
        self.iteration = 0
        """The next iteration, or the current one."""
        self.number, self.begin = 0, 0
        """The pass, and the position in it where the next iteration begins."""
        self.samples, self.batch, self.seed, self.drop_last = 0, 1, 0, False
        self.taken: list[int] = [0] * world
        """Samples that each rank has taken from its stream in this pass."""
        self.resumed = False
        """Whether a state was loaded."""
        self._has_begun = self._is_done = False

    def settle(self, *, samples: int, batch: int, seed: int, drop_last: bool) -> None:
        """Set values on which the ranks have agreed: samples of a pass (0: a stream) and of an iteration."""
        self.samples, self.batch, self.seed, self.drop_last = samples, max(1, batch), seed, drop_last

    def go_to(self, iteration: int, number: int, begin: int) -> None:
        """Continue from the position on which the ranks have agreed."""
        self.iteration, self.number, self.begin = iteration, number, begin
        if not begin:
            self.taken = [0] * self._world

    def begin_pass(self) -> Pass:
        """Begin the next pass, or the rest of one; the same one again if none of its iterations is finished."""
        if self._has_begun and (self.begin or self._is_done):
            self.go_to(self.iteration, self.number + 1, 0)
        self._has_begun, self._is_done = True, False
        return Pass(
            number=self.number,
            first=self.iteration,
            samples=self.samples,
            batch=self.batch,
            begin=self.begin,
            drop_last=self.drop_last,
        )

    def end_pass(self) -> None:
        """End the pass: it has no further iteration."""
        self._is_done = True

    def move(self, iteration: int, begin: int, sizes: Sequence[int]) -> None:
        """Finish the iteration that began at this position; it had these numbers of samples by rank."""
        self.iteration, self.begin = iteration + 1, begin + sum(sizes)
        self.taken = [before + size for before, size in zip(self.taken, sizes, strict=True)]

    @property
    def is_over(self) -> bool:
        """Whether the next iteration belongs to another pass."""
        least = self.batch if self.drop_last else 1
        return self._has_begun and (self._is_done or 0 < self.samples < self.begin + least)

    @property
    def epoch(self) -> int:
        """The pass of the next iteration."""
        return self.number + self.is_over

    def state(self) -> dict[str, Any]:
        """The state to resume from, with any number of ranks."""
        return {
            "iteration": self.iteration,
            "pass": self.epoch,
            "begin": 0 if self.is_over else self.begin,
            "samples": self.samples,
            "seed": self.seed,
            "taken": [0] * self._world if self.is_over else list(self.taken),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Resume from the saved state."""
        self.resumed = True
        self.iteration, self.number, self.begin = (int(state[name]) for name in ("iteration", "pass", "begin"))
        self.samples, self.seed = int(state["samples"]), int(state["seed"])
        taken = [int(count) for count in state["taken"]]
        self.taken = taken if len(taken) == self._world else [0] * self._world

    def fits(self, samples: int, seed: int) -> bool:
        """Whether the loaded state fits passes of this size; if not, its pass starts over."""
        if (self.samples, self.seed) == (samples, seed):
            return True
        self.go_to(self.iteration, self.number, 0)
        return False

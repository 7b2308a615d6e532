"""A job's position in its iterations and passes: the same at each rank, and saved with the script's state.

Passes are counted for each data: loaders with the same number of samples and the same seed have one position. Data
that a loader of other data follows keeps the number of its next pass.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from controlplane.protocol.dividing import Pass


class Data(NamedTuple):
    """What passes are over, as far as a position depends on it."""

    samples: int
    """0: a stream."""
    seed: int


class Cursor:
    """Advances with each finished iteration."""

    def __init__(self, world: int) -> None:
        self._world = world
        self.iteration = 0
        """The next iteration, or the current one."""
        self.number, self.begin = 0, 0
        """The pass, and the position in it where the next iteration begins."""
        self.data, self.batch, self.drop_last = Data(samples=0, seed=0), 1, False
        self._next_passes: dict[Data, int] = {}
        """The next pass over other data than the current one."""
        self.taken: list[int] = [0] * world
        """Samples that each rank has taken from its stream in this pass."""
        self.resumed = False
        """Whether a state was loaded."""
        self._ranks_before = world
        """Number of ranks that saved it."""
        self._has_begun = self._is_done = False

    def settle(self, data: Data, *, batch: int, drop_last: bool) -> None:
        """Set values on which the ranks have agreed: what passes are over, and the samples of an iteration."""
        if self._has_begun and data != self.data:
            self._turn_to(data, self._next_passes.get(data, 0))
        self._next_passes.pop(data, None)
        self.data, self.batch, self.drop_last = data, max(1, batch), drop_last

    def _turn_to(self, data: Data, number: int) -> None:
        """Go to the beginning of that pass over other data."""
        self._next_passes[self.data] = self._next_number
        self.data = data
        self.go_to(self.iteration, number, 0)
        self._has_begun = self._is_done = False

    @property
    def _next_number(self) -> int:
        return self.number + (self._has_begun and (self.begin > 0 or self._is_done))

    def go_to(self, iteration: int, number: int, begin: int) -> None:
        """Continue from the position on which the ranks have agreed."""
        self.iteration, self.number, self.begin = iteration, number, begin
        if not begin:
            self.taken = [0] * self._world

    def begin_pass(self) -> Pass:
        """Begin the next pass, or the rest of one; the same one again if none of its iterations is finished."""
        if (number := self._next_number) != self.number:
            self.go_to(self.iteration, number, 0)
        self._has_begun, self._is_done = True, False
        return Pass(
            number=self.number,
            first=self.iteration,
            samples=self.data.samples,
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
        return self._has_begun and (self._is_done or 0 < self.data.samples < self.begin + least)

    @property
    def epoch(self) -> int:
        """The pass of the next iteration."""
        return self.number + self.is_over

    def epoch_of(self, data: Data) -> int:
        """The pass of the next iteration over ``data``; a loaded state need not know it before the first pass."""
        unknown = 0 if self._has_begun and data != self.data else self.epoch
        return self._next_passes.get(data, unknown)

    def state(self) -> dict[str, Any]:
        """The state to resume from; with any number of ranks, but where ranks read streams with the same number."""
        return {
            "iteration": self.iteration,
            "pass": self.epoch,
            "begin": 0 if self.is_over else self.begin,
            "samples": self.data.samples,
            "seed": self.data.seed,
            "taken": [0] * self._world if self.is_over else list(self.taken),
            "others": [[*data, number] for data, number in self._next_passes.items()],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Resume from the saved state."""
        self.resumed = True
        self.iteration, self.number, self.begin = (int(state[name]) for name in ("iteration", "pass", "begin"))
        self.data = Data(int(state["samples"]), int(state["seed"]))
        self._next_passes = {Data(samples, seed): number for samples, seed, number in state.get("others", [])}
        taken = [int(count) for count in state["taken"]]
        self._ranks_before = len(taken)
        self.taken = taken if len(taken) == self._world else [0] * self._world

    def fits(self, data: Data) -> bool:
        """Whether the loaded state has the position in ``data``; if not, a pass over it begins anew."""
        if data == self.data:
            return True
        number, was_within = self._next_passes.pop(data, None), self.begin > 0
        self._turn_to(data, self.number if number is None else number)
        return number is not None and not was_within

    def resume_streams(self) -> str:
        """Resume within the ranks' streams; return why that cannot be, if it cannot: then their pass begins anew."""
        if not self.begin or self._ranks_before == self._world:
            return ""
        self.go_to(self.iteration, self.number, 0)
        return (
            f"the loaded state has positions in the streams of {self._ranks_before} ranks, and there are {self._world}:"
            f" pass {self.number} begins anew, and repeats samples; resume with the same number of ranks"
        )

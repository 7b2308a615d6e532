"""A rate that changes in steps, its integral, and the inverse of the integral: the time that work takes."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from controlplane.simulator.errors import ScenarioError, SeriesEnded


class Series:
    """Values of ``step_s`` seconds each, from time 0 on; with ``repeats`` they start again at the end.

    Raises:
        ScenarioError: if there are no values, or one is negative.
    """

    __slots__ = ("_area", "_name", "_repeats", "_step_s", "_values")

    def __init__(self, values: Sequence[float], *, step_s: float, name: str, repeats: bool = False) -> None:
        if not values:
            raise ScenarioError(name, [], "at least one value")
        if step_s <= 0:
            raise ScenarioError(f"{name}.step_s", step_s, "more than 0 seconds per value")
        array = np.asarray(values, dtype=np.float64)
        wrong = np.flatnonzero(~(array >= 0))
        if wrong.size:
            raise ScenarioError(f"{name}[{wrong[0]}]", values[wrong[0]], "0 or more")
        self._values: list[float] = array.tolist()
        self._step_s, self._name, self._repeats = step_s, name, repeats
        self._area: list[float] = [0.0, *np.cumsum(array * step_s).tolist()]

    @property
    def end_s(self) -> float:
        """The duration of the values."""
        return len(self._values) * self._step_s

    def at(self, time_s: float) -> float:
        """The value at that time."""
        index = int(time_s / self._step_s)
        if index >= len(self._values):
            if not self._repeats:
                raise self._ended(time_s)
            index %= len(self._values)
        return self._values[index]

    def done_by(self, time_s: float) -> float:
        """The integral from 0 to ``time_s``."""
        passes, rest_s = divmod(time_s, self.end_s) if self._repeats else (0.0, time_s)
        index = int(rest_s / self._step_s)
        if index >= len(self._values):
            if rest_s > self.end_s * (1 + 1e-12):
                raise self._ended(time_s)
            return passes * self._area[-1] + self._area[-1]
        return passes * self._area[-1] + self._area[index] + self._values[index] * (rest_s - index * self._step_s)

    def finish_s(self, start_s: float, amount: float) -> float:
        """When ``amount`` is done if started at ``start_s``.

        Raises:
            SeriesEnded: if the values end earlier.
        """
        wanted = self.done_by(start_s) + amount
        passes = 0
        if self._area[-1] == 0.0 and amount > 0:
            raise ScenarioError(self._name, "zeros only", "a value above 0, or nothing is ever done")
        if self._repeats and self._area[-1] > 0:
            passes = int(wanted / self._area[-1])
            wanted -= passes * self._area[-1]
        elif wanted > self._area[-1]:
            raise self._ended(start_s)
        # The first step by whose end the amount is done; its value is above 0, unless the amount is 0.
        index = max(0, min(bisect_left(self._area, wanted), len(self._values)) - 1)
        value = self._values[index]
        inside_s = (wanted - self._area[index]) / value if value else 0.0
        return max(start_s, passes * self.end_s + index * self._step_s + inside_s)

    def _ended(self, time_s: float) -> SeriesEnded:
        return SeriesEnded(
            f"{self._name}: its {len(self._values)} values of {self._step_s:g} s end at {self.end_s:g} s, "
            f"work begun or looked at at {time_s:g} s needs more: give a longer series, or let it repeat"
        )

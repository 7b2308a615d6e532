"""How often the norms of gradients are measured: they may take a small part of the loop's time."""

from typing import Final

from controlplane.protocol.noise import EVERY

PART: Final = 0.002
"""Of the loop's time."""

SELDOM: Final = 256
"""At least in every n-th iteration."""


class Budget:
    """The iterations of one rank in which norms are measured, every 8th to every 256th.

    The interval is a power of two, so that ranks with different intervals measure in common iterations: only then the
    errors of their estimates cancel out.
    """

    def __init__(self) -> None:
        self._every = EVERY

    def allows(self, iteration: int) -> bool:
        """Whether norms are measured in this iteration."""
        return iteration % self._every == 0

    def spend(self, took_s: float, iteration_s: float) -> None:
        """A measurement took so long; an iteration usually takes ``iteration_s``. One outlier changes little."""
        if took_s > PART * iteration_s * self._every:
            self._every = min(2 * self._every, SELDOM)
        elif 2.0 * took_s < PART * iteration_s * self._every:
            self._every = max(self._every // 2, EVERY)

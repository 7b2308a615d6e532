"""Slowdowns of single iterations that no CPU or memory reading shows: noise, and spikes of one or two iterations.

A factor is a function of seed, worker and iteration, so that all policies have the same ones.
"""

from typing import Annotated, Final

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from controlplane.protocol.base import Fraction
from controlplane.protocol.spec import Part

_CHUNK: Final = 64
"""Number of iterations that are drawn at once, for all workers."""


class Wavering(Part, frozen=True, kw_only=True):
    """How the time of an iteration varies."""

    noise: Annotated[float, Meta(ge=0.0, description="Standard deviation of the logarithm of its time.")] = 0.0
    spikes: Annotated[Fraction, Meta(description="Probability that a spike begins.")] = 0.0
    spike_times: tuple[float, float] = (1.5, 3.0)
    """The factor of a spike, drawn uniformly between the two."""


class Disturbances:
    """The factors of all workers."""

    def __init__(self, wavering: Wavering, *, workers: int, seed: int) -> None:
        self._wavering, self._workers, self._seed = wavering, workers, seed
        self._quiet = wavering.noise == 0.0 and wavering.spikes == 0.0
        self._chunks: dict[int, NDArray[np.float64]] = {}

    def factor(self, rank: int, iteration: int) -> float:
        """The factor by which that worker's iteration is slowed down."""
        if self._quiet:
            return 1.0
        factor: float = self._row(iteration).item(rank)
        return factor

    def factors(self, ranks: NDArray[np.int64], iteration: int) -> NDArray[np.float64]:
        """The same for several workers."""
        return np.ones(len(ranks)) if self._quiet else self._row(iteration)[ranks]

    def _row(self, iteration: int) -> NDArray[np.float64]:
        chunk = self._chunks.get(iteration // _CHUNK)
        if chunk is None:
            chunk = self._chunks[iteration // _CHUNK] = self._draw(iteration // _CHUNK)
        row: NDArray[np.float64] = chunk[iteration % _CHUNK]
        return row

    def _draw(self, number: int) -> NDArray[np.float64]:
        chance = np.random.default_rng([self._seed, 7919, number])
        shape = (_CHUNK, self._workers)
        # With mean 1, so that noise does not change the mean speed.
        sigma = self._wavering.noise
        factors = chance.lognormal(-sigma * sigma / 2, sigma, shape) if sigma else np.ones(shape)
        begins = chance.random(shape) < self._wavering.spikes
        times = chance.uniform(*self._wavering.spike_times, shape)
        lasts = begins & (chance.random(shape) < 0.5)
        spiked = np.where(begins, times, 1.0)
        spiked[1:] = np.maximum(spiked[1:], np.where(lasts, times, 1.0)[:-1])
        drawn: NDArray[np.float64] = factors * spiked
        return drawn

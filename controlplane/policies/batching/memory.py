"""How much memory a worker would use with a larger share (ruling 6)."""

from controlplane.core.choices import Observation
from controlplane.protocol.base import Value

FORGETTING = 0.95


class Memory(Value, frozen=True, kw_only=True):
    """The last reading, and means and moments of readings over shares."""

    now: float = 0.0
    samples: int = 0
    weight: float = 0.0
    share: float = 0.0
    used: float = 0.0
    spread: float = 0.0
    covariance: float = 0.0

    def seen(self, one: Observation) -> "Memory":
        """The state after one more iteration."""
        old = self.weight * FORGETTING
        off, more = one.samples - self.share, one.memory - self.used
        share, used = self.share + off / (old + 1), self.used + more / (old + 1)
        return Memory(
            now=one.memory,
            samples=one.samples,
            weight=old + 1,
            share=share,
            used=used,
            spread=self.spread * FORGETTING + off * (one.samples - share),
            covariance=self.covariance * FORGETTING + off * (one.memory - used),
        )

    def after(self, step: int) -> float:
        """Expected memory use with ``step`` more samples."""
        return self.now + step * self.per_sample

    @property
    def per_sample(self) -> float:
        """Memory use per sample, from the shares seen. Until shares have varied, all use is attributed to samples,
        which is safe.
        """
        if self.spread > 1.0:
            return max(0.0, self.covariance / self.spread)
        return self.now / self.samples if self.samples else 0.0

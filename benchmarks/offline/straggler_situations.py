"""Labelled situations of a training job, to measure straggler detectors: which worker or server was slow, in what, and
when.

Each situation is one story over 60 iterations of a synchronous job, with the data that its engine would get: what every
worker reported, and how long each worker's exchange with each server took. The labels say what was made slow;
everything else in it is noise, or slow for a reason that is no straggler's fault (waiting, more samples, work that grew
for all).

The constants below were written down before the detector was, and stay as they are: detectors are to find what is
there, not the other way round. All chance comes from the seed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ITERATIONS: Final = 60
SITUATIONS: Final = 500
WORKERS: Final = (3, 4, 8, 16)
SERVERS: Final = (1, 2, 3, 4, 6)
BATCH: Final = 64

LASTING: Final = (1.5, 6.0)
"""The factor by which a labelled straggler is slower: drawn log-uniformly."""

MILD: Final = (1.05, 1.2)
"""A factor that is too small for a flag."""

TRANSIENT: Final = (1, 5)
"""Iterations of a transient disturbance."""

TRANSIENT_FACTOR: Final = (2.0, 8.0)
ONSET: Final = (15, 40)
"""The iteration in which something changes."""

STRAGGLING_PART: Final = 1 / 3
"""The largest fraction of workers, or of servers, that straggle at once; with more, others are outliers.
"""

COMMUNICATION: Final = (0.4, 1.2)
"""Communication as a part of the compute time of a usual machine."""

LATENCY: Final = 0.03
"""The part of a server's exchange that does not depend on its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How noisy the machines and links are."""

    name: str
    story: str
    compute_noise: float
    """Standard deviation of the logarithm of a worker's compute time from one iteration to the next."""
    link_noise: float
    """The same for the exchange of one worker with one server."""
    memory: float = 0.0
    """The fraction of an iteration's noise that remains in the next one."""
    spikes: float = 0.0
    """Probability per worker and iteration of a time 1.5 to 4 times as long."""
    fixed: float = 0.0
    """Part of a usual compute time that does not depend on the share."""
    unlike: float = 0.03
    """Standard deviation of the logarithm of the machines' own speeds."""


SETTINGS: Final = (
    Setting(name="dedicated", story="machines of one's own", compute_noise=0.04, link_noise=0.06),
    Setting(
        name="shared",
        story="machines that others use too: load that lasts, a fixed cost per iteration",
        compute_noise=0.08,
        link_noise=0.10,
        memory=0.6,
        spikes=0.01,
        fixed=0.1,
        unlike=0.05,
    ),
    Setting(
        name="rough",
        story="as shared, noisier from one iteration to the next, with disturbances each few iterations",
        compute_noise=0.12,
        link_noise=0.15,
        spikes=0.04,
        fixed=0.1,
        unlike=0.05,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A worker or server was slow from iteration ``begin`` to before ``end``."""

    subject: str
    """worker or server."""
    index: int
    kind: str
    """compute or communication; a server's is communication."""
    factor: float
    begin: int
    end: int
    cause: str = ""
    """cpu or memory where a reading shows it, network for links; "" where nothing does."""

    @property
    def lasting(self) -> bool:
        """Whether a lasting flag is due."""
        return self.factor >= LASTING[0] and self.end - self.begin > TRANSIENT[1]


@dataclass(slots=True, kw_only=True)
class Situation:
    """Iterations by workers, and by servers for the exchanges. NaN where a worker did not take part."""

    story: str
    samples: NDArray[np.int64]
    compute_s: Array
    exchange_s: Array
    """Iterations by workers by servers."""
    server_bytes: NDArray[np.int64]
    """What one worker exchanges with each server in an iteration."""
    cpu: Array
    memory: Array
    labels: list[Label] = field(default_factory=list)

    @property
    def communication_s(self) -> Array:
        """Of each worker: its exchanges with all servers go side by side."""
        longest: Array = self.exchange_s.max(axis=2)
        return longest

    @property
    def waiting_s(self) -> Array:
        """The time that each worker waits for the slowest."""
        busy = self.compute_s + self.communication_s
        waited: Array = np.nanmax(busy, axis=1, keepdims=True) - busy
        return waited


@dataclass(slots=True, kw_only=True)
class Draft:
    """The settings that a story may change before the times are drawn."""

    setting: Setting
    chance: np.random.Generator
    workers: int
    servers: int
    compute: Array
    """By iteration and worker: times a usual machine's compute time per sample."""
    link: Array
    """By iteration and worker: times a usual link's time."""
    server: Array
    """By iteration and server."""
    cpu: Array
    memory: Array
    present: NDArray[np.bool_]
    balanced: bool
    """Whether shares follow the machines' true speeds of three iterations before, as LB-BSP's would."""
    skewed: bool = False
    """Whether shares differ for no reason of speed."""
    labels: list[Label] = field(default_factory=list)

    def factor(self, span: tuple[float, float] = LASTING) -> float:
        """A log-uniform factor."""
        return float(math.exp(self.chance.uniform(math.log(span[0]), math.log(span[1]))))

    def onset(self) -> int:
        """The iteration in which something changes."""
        return int(self.chance.integers(*ONSET, endpoint=True))

    def some(self, count: int) -> list[int]:
        """Different indices below ``count``: one, or up to a third of them."""
        most = max(1, int(count * STRAGGLING_PART))
        size = 1 if self.chance.random() < 0.7 else int(self.chance.integers(1, most, endpoint=True))
        return sorted(int(index) for index in self.chance.choice(count, size, replace=False))

    def slow_compute(self, rank: int, factor: float, begin: int, end: int = ITERATIONS) -> None:
        """Make a worker's compute slow; in two of three cases a reading shows why."""
        self.compute[begin:end, rank] *= factor
        cause = str(self.chance.choice(["cpu", "memory", ""]))
        if cause == "cpu":
            self.cpu[begin:end, rank] += self.chance.uniform(0.3, 0.6)
        elif cause == "memory":
            self.memory[begin:end, rank] += self.chance.uniform(0.35, 0.5)
        self._label("worker", rank, "compute", factor, begin, end, cause)

    def slow_link(self, rank: int, factor: float, begin: int, end: int = ITERATIONS) -> None:
        """Make a worker's exchanges with all servers slow."""
        self.link[begin:end, rank] *= factor
        self._label("worker", rank, "communication", factor, begin, end, "network")

    def slow_server(self, index: int, factor: float, begin: int, end: int = ITERATIONS) -> None:
        """Make all workers' exchanges with one server slow."""
        self.server[begin:end, index] *= factor
        self._label("server", index, "communication", factor, begin, end, "network")

    def _label(self, subject: str, index: int, kind: str, factor: float, begin: int, end: int, cause: str) -> None:
        self.labels.append(
            Label(subject=subject, index=index, kind=kind, factor=factor, begin=begin, end=end, cause=cause)
        )


def _calm(draft: Draft) -> None:
    """Nothing happens."""


def _mild(draft: Draft) -> None:
    for rank in draft.some(draft.workers):
        draft.slow_compute(rank, draft.factor(MILD), draft.onset())


def _slow_from_the_start(draft: Draft) -> None:
    for rank in draft.some(draft.workers):
        draft.slow_compute(rank, draft.factor(), 0)


def _becomes_slow(draft: Draft) -> None:
    for rank in draft.some(draft.workers):
        draft.slow_compute(rank, draft.factor(), draft.onset())


def _slow_and_recovers(draft: Draft) -> None:
    begin = int(draft.chance.integers(10, 20))
    draft.slow_compute(draft.some(draft.workers)[0], draft.factor(), begin, begin + int(draft.chance.integers(15, 25)))


def _link_becomes_slow(draft: Draft) -> None:
    for rank in draft.some(draft.workers):
        draft.slow_link(rank, draft.factor(), draft.onset())


def _slow_in_both(draft: Draft) -> None:
    rank, begin = draft.some(draft.workers)[0], draft.onset()
    draft.slow_compute(rank, draft.factor(), begin)
    draft.slow_link(rank, draft.factor(), begin)


def _transient(draft: Draft) -> None:
    rank = draft.some(draft.workers)[0]
    for begin in (10, 25, 40)[: int(draft.chance.integers(1, 3, endpoint=True))]:
        length = int(draft.chance.integers(*TRANSIENT, endpoint=True))
        slow = draft.slow_compute if draft.chance.random() < 0.5 else draft.slow_link
        slow(rank, draft.factor(TRANSIENT_FACTOR), begin, begin + length)


def _now_and_then(draft: Draft) -> None:
    """Each fifth iteration takes longer: another job wakes up."""
    rank, factor = draft.some(draft.workers)[0], draft.factor(TRANSIENT_FACTOR)
    for begin in range(int(draft.chance.integers(5, 10)), ITERATIONS, 5):
        draft.slow_compute(rank, factor, begin, begin + 1)


def _creeps(draft: Draft) -> None:
    """Grows over 20 iterations; labelled from the iteration on in which it has become 1.5 times as slow."""
    rank, begin, factor = draft.some(draft.workers)[0], int(draft.chance.integers(10, 20)), draft.factor((2.0, 6.0))
    ramp = np.clip((np.arange(ITERATIONS) - begin) / 20, 0.0, 1.0)
    factors = np.exp(ramp * math.log(factor))
    draft.compute[:, rank] *= factors
    first = int(np.argmax(factors >= LASTING[0]))
    draft._label("worker", rank, "compute", factor, first, ITERATIONS, "")


def _all_slow_down(draft: Draft) -> None:
    """The work itself grows: longer sequences, say."""
    draft.compute[draft.onset() :] *= draft.factor((1.5, 3.0))


def _one_is_fast(draft: Draft) -> None:
    """One worker is fast and waits most of the time."""
    draft.compute[:, draft.some(draft.workers)[0]] /= draft.factor((1.5, 3.0))


def _fast_one_falls_back(draft: Draft) -> None:
    """Slow compared with its past, but now about as fast as the others."""
    rank, ahead = draft.some(draft.workers)[0], draft.factor((1.6, 2.5))
    draft.compute[:, rank] /= ahead
    draft.slow_compute(rank, max(LASTING[0], ahead * float(draft.chance.uniform(0.9, 1.1))), draft.onset())


def _server_becomes_slow(draft: Draft) -> None:
    if draft.servers < 3:
        return
    draft.slow_server(draft.some(draft.servers)[0], draft.factor(), draft.onset())


def _server_is_disturbed(draft: Draft) -> None:
    begin = draft.onset()
    length = int(draft.chance.integers(*TRANSIENT, endpoint=True))
    draft.slow_server(draft.some(draft.servers)[0], draft.factor(TRANSIENT_FACTOR), begin, begin + length)


def _uneven_shares(draft: Draft) -> None:
    """The workers have shares of very different sizes."""
    draft.skewed = True


def _one_leaves(draft: Draft) -> None:
    if draft.workers > 3:
        draft.present[draft.onset() :, draft.some(draft.workers)[0]] = False


def _one_joins(draft: Draft) -> None:
    if draft.workers > 3:
        draft.present[: draft.onset(), draft.some(draft.workers)[0]] = False


STORIES: Final[dict[str, tuple[int, Callable[[Draft], None]]]] = {
    "calm": (3, _calm),
    "mild": (2, _mild),
    "slow from the start": (3, _slow_from_the_start),
    "becomes slow": (4, _becomes_slow),
    "slow and recovers": (2, _slow_and_recovers),
    "link becomes slow": (4, _link_becomes_slow),
    "slow in both": (2, _slow_in_both),
    "transient": (3, _transient),
    "now and then": (1, _now_and_then),
    "creeps": (1, _creeps),
    "all slow down": (1, _all_slow_down),
    "one is fast": (1, _one_is_fast),
    "fast one falls back": (1, _fast_one_falls_back),
    "server becomes slow": (3, _server_becomes_slow),
    "server is disturbed": (1, _server_is_disturbed),
    "uneven shares": (1, _uneven_shares),
    "one leaves": (1, _one_leaves),
    "one joins": (1, _one_joins),
}
"""Relative frequency of each story."""


def generate(setting: Setting, *, seed: int, count: int = SITUATIONS) -> list[Situation]:
    """``count`` situations; the same seed gives the same ones."""
    chance = np.random.default_rng([seed, *setting.name.encode()])
    names = [name for name, (often, _) in STORIES.items() for _ in range(often)]
    return [_tell(str(names[int(chance.integers(len(names)))]), setting, chance) for _ in range(count)]


def _tell(story: str, setting: Setting, chance: np.random.Generator) -> Situation:
    workers, servers = int(chance.choice(WORKERS)), int(chance.choice(SERVERS))
    shape = (ITERATIONS, workers)
    draft = Draft(
        setting=setting,
        chance=chance,
        workers=workers,
        servers=servers,
        compute=np.ones(shape) * chance.lognormal(0.0, setting.unlike, workers),
        link=np.ones(shape) * chance.lognormal(0.0, setting.unlike, workers),
        server=np.ones((ITERATIONS, servers)),
        cpu=np.ones(shape) * chance.uniform(0.1, 0.3, workers),
        memory=np.ones(shape) * chance.uniform(0.3, 0.45, workers),
        present=np.ones(shape, dtype=np.bool_),
        balanced=bool(chance.random() < 0.4),
    )
    STORIES[story][1](draft)
    return _draw(story, draft)


def _draw(story: str, draft: Draft) -> Situation:
    setting, chance = draft.setting, draft.chance
    samples = _shares(draft)
    usual_s = float(math.exp(chance.uniform(math.log(0.02), math.log(2.0))))
    own = setting.fixed + (1 - setting.fixed) * samples / BATCH
    compute = usual_s * draft.compute * own * _noise(setting.compute_noise, draft.compute.shape, setting, chance)
    spiked = chance.random(compute.shape) < setting.spikes
    compute *= np.where(spiked, chance.uniform(1.5, 4.0, compute.shape), 1.0)

    sizes = chance.uniform(0.8, 1.2, draft.servers)
    sizes /= sizes.mean()
    base = usual_s * chance.uniform(*COMMUNICATION) * (LATENCY + (1 - LATENCY) * sizes)
    shape = (ITERATIONS, draft.workers, draft.servers)
    exchange = base * draft.link[:, :, None] * draft.server[:, None, :]
    exchange = exchange * _noise(setting.link_noise, shape, setting, chance)

    compute[~draft.present] = np.nan
    exchange[~draft.present] = np.nan
    return Situation(
        story=story,
        samples=samples,
        compute_s=compute,
        exchange_s=exchange,
        server_bytes=(sizes * 2**24).astype(np.int64),
        cpu=np.clip(draft.cpu + chance.normal(0.0, 0.03, draft.cpu.shape), 0.0, 1.0),
        memory=np.clip(draft.memory + chance.normal(0.0, 0.02, draft.memory.shape), 0.0, 1.0),
        labels=draft.labels,
    )


def _shares(draft: Draft) -> NDArray[np.int64]:
    if draft.skewed:
        weights = np.ones(draft.compute.shape) * draft.chance.uniform(0.3, 2.0, draft.workers)
    elif draft.balanced:
        lagged = np.vstack([draft.compute[:1]] * 3 + [draft.compute[:-3]])
        weights = 1.0 / lagged
    else:
        weights = np.ones(draft.compute.shape)
    weights = np.where(draft.present, weights, 0.0)
    parts = BATCH * draft.workers * weights / weights.sum(axis=1, keepdims=True)
    shares: NDArray[np.int64] = np.maximum(1, np.rint(parts)).astype(np.int64)
    return shares


def _noise(sigma: float, shape: tuple[int, ...], setting: Setting, chance: np.random.Generator) -> Array:
    """Lognormal; with memory, each iteration keeps a part of the noise of the one before."""
    drawn = chance.normal(0.0, sigma, shape)
    fresh = math.sqrt(1 - setting.memory**2)
    for at in range(1, shape[0]):
        drawn[at] = setting.memory * drawn[at - 1] + fresh * drawn[at]
    factors: Array = np.exp(drawn)
    return factors

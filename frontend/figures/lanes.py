"""Prepares the lanes, the first picture of a job: which workers are slow, which wait, and their shares. Pure.

One lane per worker on a common time scale: its iteration with equal shares (thin) and its current iteration (thick).
A template draws it as a table with bars, so that it is visible before any script runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from frontend.figures.phases import is_noticeable

BALANCED = 0.10
"""Waiting shares below this are within noise."""

NOTICED = 0.05
"""The smallest change of the waiting share that is mentioned."""

MUCH = 0.25
"""Fraction of an iteration above which waiting for orders is mentioned first."""

STARVED = 0.25
"""Fraction of an iteration above which data loading counts as the reason why the slowest worker is slow."""

SLOWER = 0.95
"""Below this speed relative to equal shares, balanced shares are reported as slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The phases of one iteration, in seconds."""

    data_s: float
    compute_s: float
    communication_s: float
    waiting_s: float
    coordination_s: float

    @property
    def processing_s(self) -> float:
        """Data loading and compute, drawn as one bar if no worker waits for its batches."""
        return self.data_s + self.compute_s

    @property
    def busy_s(self) -> float:
        """All time except lost time."""
        return self.processing_s + self.communication_s

    @property
    def whole_s(self) -> float:
        """The iteration's length."""
        return self.busy_s + self.waiting_s + self.coordination_s

    @property
    def lost_share(self) -> float:
        """Waiting and coordination, as a share of the iteration."""
        return (self.waiting_s + self.coordination_s) / self.whole_s if self.whole_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One worker: its current mean iteration, and the one with equal shares if it is known."""

    rank: int
    machine: str
    share: int
    now: Phases
    even_share: int
    even: Phases | None
    flagged: bool = False
    others: tuple[int, ...] = ()
    """Further workers that look the same and are drawn with it."""
    machines: int = 1
    """How many machines they run on."""

    @property
    def count(self) -> int:
        """The number of workers that it represents."""
        return 1 + len(self.others)

    @property
    def title(self) -> str:
        """``w3``, or ``w0 to w5, w7``."""
        return _ranges((self.rank, *self.others))

    @property
    def samples_per_second(self) -> float:
        """Its speed without waiting: v in LB-BSP."""
        return self.share / self.now.busy_s if self.now.busy_s else 0.0

    @property
    def share_moved(self) -> bool:
        """Whether balancing changed its share from the equal one."""
        return self.share != self.even_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The decision that set the shares: its position in the log, its first iteration, and its reason."""

    incarnation: int
    sequence: int
    iteration: int
    reason: str

    @property
    def before(self) -> int:
        """The value of ``before`` in the URL with which the log starts at this decision."""
        return self.sequence + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedUp:
    """The speed of iterations, relative to equal shares."""

    recent: float
    iterations: int
    """Number of the last iterations over which ``recent`` is measured."""
    run: float | None
    """Over the whole run, including the equal shares at its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """All lanes that are shown, by rank, and their common scale."""

    rows: tuple[Lane, ...]
    roster: int
    """The job's requested number of workers."""
    reporting: int
    """How many took part in the drawn iterations; with many workers, not all are shown."""
    iterations: int
    """The number of last iterations whose mean is "now"."""
    adaptive: bool
    """Whether the job's batching policy moves shares."""
    over: bool = False
    """Whether "now" was the end of the job."""
    failed: bool = False
    """Whether the job failed."""
    hangs: bool = False
    """Whether an iteration hangs: the iterations before it are drawn."""
    decided: Decided | None = None
    """The decision that set these shares."""
    run_s: float | None = None
    """The mean length of an iteration over the whole run."""
    estimated: bool = False
    """Whether iterations with equal shares are estimated from the current ones, as none were measured after warm-up."""

    @property
    def each_now(self) -> list[Phases]:
        """The current iteration of each worker that is shown."""
        return [lane.now for lane in self.rows for _ in range(lane.count)]

    @property
    def each_even(self) -> list[Phases]:
        """The iteration with equal shares of each of these workers, where it is known."""
        return [lane.even for lane in self.rows if lane.even for _ in range(lane.count)]

    @property
    def shown(self) -> int:
        """The number of workers that the lanes represent."""
        return sum(lane.count for lane in self.rows)

    @property
    def scale_s(self) -> float:
        """The longest iteration drawn."""
        lengths = [phases.whole_s for lane in self.rows for phases in (lane.now, lane.even) if phases]
        return max(lengths, default=0.0)

    @property
    def is_loading(self) -> bool:
        """Whether some worker waits noticeably for its batches: data loading is then drawn separately from compute."""
        drawn = (phases for lane in self.rows for phases in (lane.now, lane.even) if phases)
        return is_noticeable((phases.data_s, phases.whole_s) for phases in drawn)

    @property
    def has_even(self) -> bool:
        """Whether there are iterations with equal shares to compare with, and shares have changed since."""
        return any(lane.even for lane in self.rows) and any(lane.share_moved for lane in self.rows)

    @property
    def speed_up(self) -> float | None:
        """The speed of an iteration relative to equal shares; None without such iterations."""
        before, now = self.each_even, length(self.each_now)
        return length(before) / now if self.has_even and now else None

    @property
    def gained(self) -> "SpeedUp | None":
        """The same, with the speed-up of the whole run."""
        if self.speed_up is None:
            return None
        overall = length(self.each_even) / self.run_s if self.run_s and not self.estimated else None
        return SpeedUp(recent=self.speed_up, iterations=self.iterations, run=overall)

    @property
    def largest_share(self) -> int:
        """The scale of the share bars."""
        return max((max(lane.share, lane.even_share) for lane in self.rows), default=1) or 1


def estimated(rows: Sequence[Lane]) -> list[Lane]:
    """The lanes with estimated iterations under equal shares, from each worker's time per sample.

    This is an upper bound: time that does not depend on the share is scaled with it as well.
    """
    if not rows or not all(lane.share for lane in rows):
        return list(rows)
    apart = []
    for lane in rows:
        times = lane.even_share / lane.share
        apart.append(replace(lane.now, data_s=times * lane.now.data_s, compute_s=times * lane.now.compute_s))
    later_s = max(each.busy_s for each in apart) - max(lane.now.busy_s for lane in rows)
    return [
        replace(
            lane,
            even=replace(each, waiting_s=max(0.0, lane.now.waiting_s + later_s + lane.now.busy_s - each.busy_s)),
        )
        for lane, each in zip(rows, apart, strict=True)
    ]


ALIKE = 0.04
"""Two workers look the same if each of their phases differs by less than this fraction of the iteration."""


def merged(rows: Sequence[Lane]) -> list[Lane]:
    """Merge lanes that look the same, sorted by rank; a flagged worker always has its own lane."""
    groups: list[list[Lane]] = []
    for row in rows:
        alike = next((group for group in groups if not row.flagged and _is_alike(group[0], row)), None)
        if alike is not None:
            alike.append(row)
        else:
            groups.append([row])
    return [_one(group) for group in groups]


def _is_alike(first: Lane, row: Lane) -> bool:
    if first.flagged or abs(first.share - row.share) > max(1.0, ALIKE * first.share):
        return False
    if (first.even is None) != (row.even is None):
        return False
    pairs = [(first.now, row.now)] + ([(first.even, row.even)] if first.even and row.even else [])
    return all(_looks_like(one, other) for one, other in pairs)


def _looks_like(one: Phases, other: Phases) -> bool:
    near = ALIKE * one.whole_s
    return all(abs(getattr(one, name) - getattr(other, name)) <= near for name in Phases.__dataclass_fields__)


def _one(group: Sequence[Lane]) -> Lane:
    """The mean of lanes that look the same."""
    evens = [lane.even for lane in group if lane.even]
    return replace(
        group[0],
        now=_mean_of([lane.now for lane in group]),
        even=_mean_of(evens) if evens else None,
        others=tuple(lane.rank for lane in group[1:]),
        machines=len({lane.machine for lane in group}),
    )


def _mean_of(phases: Sequence[Phases]) -> Phases:
    return Phases(
        **{name: sum(getattr(each, name) for each in phases) / len(phases) for name in Phases.__dataclass_fields__}
    )


def _ranges(ranks: Sequence[int]) -> str:
    """``w0 to w5, w7``."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][-1] + 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    texts = [
        ", ".join(f"w{rank}" for rank in part) if len(part) < 3 else f"w{part[0]} to w{part[-1]}" for part in parts
    ]
    return ", ".join(texts[:4]) + (f" and {len(texts) - 4} more" if len(texts) > 4 else "")


def waiting(phases: list[Phases]) -> float:
    """Waiting as a share of all these workers' time."""
    whole = sum(each.whole_s for each in phases)
    return sum(each.waiting_s for each in phases) / whole if whole else 0.0


def length(phases: list[Phases]) -> float:
    """The mean length of an iteration, in seconds."""
    return sum(each.whole_s for each in phases) / len(phases) if phases else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The sentence above the lanes. ``tone`` is calm, good, watch or bad."""

    tone: str
    headline: str
    detail: str = ""
    about: str = field(default="", compare=False)
    """The verdict's subject: verdicts with different subjects differ, whatever their numbers."""


def verdict(lanes: Lanes) -> Verdict:
    """Describe the lanes as text."""
    if not lanes.rows:
        return Verdict(tone="calm", headline="No iteration reported yet")
    if lanes.failed:
        return Verdict(tone="bad", headline="The job failed. Its last iterations are shown.", detail=_missing(lanes))
    if lanes.hangs:
        return Verdict(
            tone="bad",
            headline="An iteration has not completed. The iterations before it are shown.",
            detail=_missing(lanes),
        )
    if lanes.reporting == 1:
        return Verdict(tone="calm", headline="Single worker: no waiting for others", detail=_missing(lanes))
    lost = waiting(lanes.each_now)
    if lost <= BALANCED:
        return _balanced(lanes, lost)
    slowest = max(lanes.rows, key=lambda lane: (lane.now.busy_s, -lane.rank))
    rest = lanes.each_now
    rest.remove(slowest.now)
    others = waiting(rest)
    sets, spend = ("set", "spent") if lanes.over else ("sets", "spend")
    headline = f"w{slowest.rank} {sets} the pace: the other workers {spend} {others:.0%} of their time waiting for it"
    detail = _joined(_missing(lanes), _starved(slowest), _gain(lanes, lost) or _prospect(lanes))
    return Verdict(tone="watch", headline=headline, detail=detail, about=f"w{slowest.rank}")


def _balanced(lanes: Lanes, lost: float) -> Verdict:
    """No worker waits for another. This is not good if all wait for orders, or were faster with equal shares."""
    gain, orders = _gain(lanes, lost), _orders_share(lanes)
    missing, together = _missing(lanes), f"{_all(lanes)} together"
    if orders > MUCH:
        headline = f"Coordination takes {orders:.0%} of an iteration (waiting for the control plane)"
        return Verdict(
            tone="watch",
            headline=headline,
            detail=_joined(missing, f"Apart from that, {together}.", gain),
            about="orders",
        )
    coordination = f"Coordination takes {orders:.0%} of an iteration." if orders > BALANCED else ""
    if gain and (lanes.speed_up or 1.0) < SLOWER:
        headline = f"Balanced, but slower than with equal shares: {together}"
        return Verdict(tone="watch", headline=headline, detail=_joined(missing, gain, coordination), about="even split")
    return Verdict(tone="good", headline=f"Balanced: {together}", detail=_joined(missing, gain, coordination))


def _joined(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def _all(lanes: Lanes) -> str:
    """The subject and verb of the sentence about the end of the iteration."""
    who = "all workers" if lanes.reporting == lanes.roster else f"the {lanes.reporting} remaining workers"
    return f"{who} {'finished' if lanes.over else 'finish'}"


def _missing(lanes: Lanes) -> str:
    """A sentence about workers that did not take part; empty if all did."""
    if lanes.reporting >= lanes.roster:
        return ""
    verb = "took" if lanes.over else "take"
    return f"Only {lanes.reporting} of {lanes.roster} workers {verb} part in these iterations."


def _orders_share(lanes: Lanes) -> float:
    """Coordination, as a fraction of the iteration."""
    whole = sum(each.whole_s for each in lanes.each_now)
    return sum(each.coordination_s for each in lanes.each_now) / whole if whole else 0.0


def _gain(lanes: Lanes, lost: float) -> str:
    """The gain from changing the shares, if it is known."""
    before = lanes.each_even
    if not lanes.has_even or waiting(before) - lost < NOTICED:
        return ""
    was, now = length(before), length(lanes.each_now)
    if lanes.estimated:
        return (
            f"With equal shares an iteration would take up to {was * 1000:.0f} ms instead of {now * 1000:.0f} ms,"
            f" estimated from each worker's time per sample: up to {lanes.speed_up or 1:.1f} times as long."
        )
    return (
        f"Compared with equal shares, waiting changed from {waiting(before):.0%} to {lost:.0%}"
        f" and the iteration time from {was * 1000:.0f} to {now * 1000:.0f} ms:"
        f" {lanes.speed_up or 1:.1f} times as fast."
    )


def _starved(slowest: Lane) -> str:
    """Reports that the slowest worker spends its time on data loading, if it does."""
    part = slowest.now.data_s / slowest.now.whole_s if slowest.now.whole_s else 0.0
    if part < STARVED:
        return ""
    return f"w{slowest.rank} waits for its next batch in {part:.0%} of its time (data loading)."


def _prospect(lanes: Lanes) -> str:
    if lanes.over:
        return "" if lanes.adaptive else "With uniform batching, all workers had the same share."
    if lanes.adaptive:
        return "Shares follow the measured speeds. They change once there is enough evidence."
    return "With uniform batching, all workers have the same share, so this will not change by itself."

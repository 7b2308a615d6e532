"""The first picture of a job: which worker is slow, which ones wait, and what each share became. Pure.

One lane per worker on one time scale: its iteration under the even split, thin, and its current iteration, thick. It
is drawn as a table with bars by a template, so that it is visible before any script runs.
"""

from dataclasses import dataclass, field

from frontend.figures.phases import is_noticeable

BALANCED = 0.10
"""A waiting share below this is rounding and noise."""

NOTICED = 0.05
"""A change of the waiting share that is worth a sentence."""

MUCH = 0.25
"""Part of an iteration: if waiting for orders takes more, it is mentioned first."""

STARVED = 0.25
"""Part of an iteration: the slowest worker is slow because of its data loading if it waits this long for batches."""

SLOWER = 0.95
"""If the speed is below this many times the even split's, shares are no gain, however balanced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Where one iteration's time goes, in seconds."""

    data_s: float
    compute_s: float
    communication_s: float
    waiting_s: float
    coordination_s: float

    @property
    def processing_s(self) -> float:
        """Data loading and compute, which are one bar if no worker waits for its batches."""
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
    """One worker: its current mean iteration, and the one under the even split if that was measured."""

    rank: int
    machine: str
    share: int
    now: Phases
    even_share: int
    even: Phases | None
    flagged: bool = False

    @property
    def samples_per_second(self) -> float:
        """Its speed without waiting: LB-BSP's v."""
        return self.share / self.now.busy_s if self.now.busy_s else 0.0

    @property
    def share_moved(self) -> bool:
        """Whether balancing gave it another share than the even one."""
        return self.share != self.even_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The decision that set the shares: its place in the log, its first iteration, and its reason."""

    incarnation: int
    sequence: int
    iteration: int
    reason: str

    @property
    def before(self) -> int:
        """The log up to it, as the page's URL selects it."""
        return self.sequence + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedUp:
    """The speed of iterations, relative to the even split."""

    recent: float
    iterations: int
    """Number of the last iterations over which ``recent`` is measured."""
    run: float | None
    """Over the whole run, including the even split at its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """All lanes that are shown, by rank, and their common scale."""

    rows: tuple[Lane, ...]
    roster: int
    """The job's requested number of workers."""
    reporting: int
    """How many took part in the drawn iterations; of many, not all are shown."""
    iterations: int
    """The number of last iterations whose mean is "now"."""
    adaptive: bool
    """Whether the job's batching policy moves shares."""
    over: bool = False
    """Whether "now" was the end of the job."""
    failed: bool = False
    """Whether it ended otherwise than requested."""
    hangs: bool = False
    """Whether an iteration does not end: what is drawn was before it."""
    decided: Decided | None = None
    """The decision that set these shares."""
    run_s: float | None = None
    """The mean length of an iteration over the whole run."""

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
        """Whether there are earlier iterations to compare with, and shares have changed since."""
        return any(lane.even for lane in self.rows) and any(lane.share_moved for lane in self.rows)

    @property
    def speed_up(self) -> float | None:
        """The speed of an iteration relative to the even split; None without such iterations."""
        before, now = [lane.even for lane in self.rows if lane.even], length([lane.now for lane in self.rows])
        return length(before) / now if self.has_even and now else None

    @property
    def gained(self) -> "SpeedUp | None":
        """The same, with that of the whole run."""
        if self.speed_up is None:
            return None
        before = length([lane.even for lane in self.rows if lane.even])
        return SpeedUp(
            recent=self.speed_up, iterations=self.iterations, run=before / self.run_s if self.run_s else None
        )

    @property
    def largest_share(self) -> int:
        """The scale of the share bars."""
        return max((max(lane.share, lane.even_share) for lane in self.rows), default=1) or 1


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
    """The verdict's subject: another subject makes another verdict, whatever the numbers."""


def verdict(lanes: Lanes) -> Verdict:
    """The picture as text."""
    if not lanes.rows:
        return Verdict(tone="calm", headline="No iteration reported yet")
    if lanes.failed:
        return Verdict(tone="bad", headline="The job failed. Its last iterations are shown.", detail=_missing(lanes))
    if lanes.hangs:
        return Verdict(
            tone="bad", headline="An iteration does not end. The last ones before it are shown.", detail=_missing(lanes)
        )
    if lanes.reporting == 1:
        return Verdict(tone="calm", headline="Single worker: no waiting for others", detail=_missing(lanes))
    lost = waiting([lane.now for lane in lanes.rows])
    if lost <= BALANCED:
        return _balanced(lanes, lost)
    slowest = max(lanes.rows, key=lambda lane: (lane.now.busy_s, -lane.rank))
    others = waiting([lane.now for lane in lanes.rows if lane is not slowest])
    sets, spend = ("set", "spent") if lanes.over else ("sets", "spend")
    headline = f"w{slowest.rank} {sets} the pace: the other workers {spend} {others:.0%} of their time waiting for it"
    detail = _joined(_missing(lanes), _starved(slowest), _gain(lanes, lost) or _prospect(lanes))
    return Verdict(tone="watch", headline=headline, detail=detail, about=f"w{slowest.rank}")


def _balanced(lanes: Lanes, lost: float) -> Verdict:
    """No worker waits for another; that is no success if all wait for orders, or were faster at the even split."""
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
    """The subject of the sentence about the end, with its verb."""
    who = "all workers" if lanes.reporting == lanes.roster else f"the {lanes.reporting} remaining workers"
    return f"{who} {'finished' if lanes.over else 'finish'}"


def _missing(lanes: Lanes) -> str:
    """The workers that are not shown because they did not take part."""
    if lanes.reporting >= lanes.roster:
        return ""
    verb = "took" if lanes.over else "take"
    return f"Only {lanes.reporting} of {lanes.roster} workers {verb} part in these iterations."


def _orders_share(lanes: Lanes) -> float:
    """The cost of decisions, as part of an iteration."""
    whole = sum(lane.now.whole_s for lane in lanes.rows)
    return sum(lane.now.coordination_s for lane in lanes.rows) / whole if whole else 0.0


def _gain(lanes: Lanes, lost: float) -> str:
    """The gain from changing the shares, if it was measured."""
    before = [lane.even for lane in lanes.rows if lane.even]
    if not lanes.has_even or waiting(before) - lost < NOTICED:
        return ""
    was, now = length(before), length([lane.now for lane in lanes.rows])
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
        return "Shares follow measured speed. They change once there is enough evidence."
    return "With uniform batching, all workers have the same share, so this does not change by itself."

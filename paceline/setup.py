"""What the ranks agree on before the first batch: sizes, seed, where to begin, and whose shares. Two small sums."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from controlplane.protocol.agreement import Timeline
from controlplane.protocol.orders import Orders
from paceline.channel import AnyChannel
from paceline.cursor import Cursor

if TYPE_CHECKING:
    from paceline.loading import Plan

HALF = 2**32


class Facts(NamedTuple):
    """One rank's contribution."""

    samples: int
    """Samples of its data set; 0: a stream's."""
    batch: int
    """Samples of one rank, per iteration."""
    multiple: int
    seed_high: int
    seed_low: int
    drop_last: int
    watched: int
    """Whether its gradients are weighted."""
    governed: int
    """Whether a control plane is named."""
    resumed: int
    """Whether the script has loaded a state."""
    iteration: int
    number: int
    """Number of the pass."""
    begin: int
    """Position in the pass."""
    incarnation: int
    generation: int
    sequence: int
    """Sequence number of its orders; -1: it has none."""

    @property
    def seed(self) -> int:
        """The field as it was given."""
        return self.seed_high * HALF + self.seed_low

    @property
    def newness(self) -> tuple[int, int, int]:
        """A number by which newer orders compare greater."""
        return self.incarnation, self.generation, self.sequence


def facts_of(
    plan: "Plan", samples: int, cursor: Cursor, orders: Orders | None, *, watched: bool, governed: bool, resumed: bool
) -> Facts:
    """What a rank contributes that loads so many samples by that plan, and has heard those orders."""
    return Facts(
        samples,
        plan.share,
        plan.multiple * plan.accumulate,
        *divmod(plan.seed, HALF),
        int(plan.drop_last),
        int(watched),
        int(governed),
        int(resumed),
        cursor.iteration,
        cursor.number,
        cursor.begin,
        *(orders.rank_in_time if orders is not None else (-1, -1, -1)),
    )


class Start(NamedTuple):
    """How all ranks begin."""

    samples: int
    batches: list[int]
    """Shares of the ranks, where each rank decides by itself."""
    multiple: int
    seed: int
    drop_last: bool
    governed: bool
    fixed: bool
    """Whether shares stay as they are."""
    iteration: int
    number: int
    begin: int
    timeline: Timeline
    notes: list[str]
    """What is wrong, for display."""


def agree(channel: AnyChannel | None, rank: int, world: int, own: Facts, orders: Orders | None) -> Start:
    """The same at each rank. Collective."""
    if channel is None:
        everybody = [own] * world
    else:
        words = [0.0] * (world * len(own))
        words[rank * len(own) : (rank + 1) * len(own)] = [float(value) for value in own]
        total = [int(value) for value in channel.total(words)]
        everybody = [Facts(*total[at : at + len(own)]) for at in range(0, len(total), len(own))]
    first = everybody[0]
    samples = min(facts.samples for facts in everybody)
    batches = [facts.batch for facts in everybody]
    multiple = max(facts.multiple for facts in everybody)
    notes = _notes(everybody, channel)
    leader = max(range(world), key=lambda each: (everybody[each].newness, -each))
    given = [0, 0, *([0] * world)]
    if channel is not None and everybody[leader].newness >= (0, 0, 0):
        if rank == leader and orders is not None:
            fits = len(orders.shares) == world and sum(orders.shares) == sum(batches)
            shares = orders.shares if fits else [0] * world
            given = [orders.share_from, orders.shares_version if fits else 0, *shares]
        given = [int(value) for value in channel.total([float(value) for value in given])]
    job_iteration, version, *shares = given
    iteration, number, begin = _where(everybody, samples, sum(batches), job_iteration)
    watched = all(facts.watched for facts in everybody)
    fits = any(shares) and watched
    return Start(
        samples=samples,
        batches=batches,
        multiple=multiple,
        seed=first.seed,
        drop_last=bool(first.drop_last),
        governed=any(facts.governed for facts in everybody),
        fixed=not watched or channel is None,
        iteration=iteration,
        number=number,
        begin=begin,
        timeline=Timeline(shares if fits else batches, first=iteration, version=version if fits else 0),
        notes=notes,
    )


def _where(everybody: Sequence[Facts], samples: int, batch: int, job_iteration: int) -> tuple[int, int, int]:
    """Iteration, pass, and position in it: of the script's state, or the job's current ones."""
    resumed = next((facts for facts in everybody if facts.resumed), None)
    if resumed is not None:
        return resumed.iteration, resumed.number, resumed.begin
    if not (job_iteration and samples):
        return job_iteration, 0, 0
    per_pass = samples // batch if everybody[0].drop_last else -(-samples // batch)
    number, place = divmod(job_iteration, max(1, per_pass))
    return job_iteration, number, place * batch


def _notes(everybody: Sequence[Facts], channel: AnyChannel | None) -> list[str]:
    notes = []
    if channel is None:
        notes.append(
            "torch.distributed is not initialised, so the ranks cannot agree on anything: shares stay even. Call"
            " init_process_group() before the first batch"
        )
    for name, what, cure in (
        ("samples", "samples in its data set", "all use the first {0}; give each rank the same data set"),
        ("batch", "samples per iteration", "each begins with its own; give loader() the same batch_size everywhere"),
        ("seed", "as seed", "all use that of rank 0; give loader() the same seed everywhere"),
        ("multiple", "as multiple of shares", "all use the largest; give loader() the same multiple everywhere"),
    ):
        values = [getattr(facts, name) for facts in everybody]
        if len(set(values)) > 1:
            found = ", ".join(f"rank {rank} has {value}" for rank, value in enumerate(values[:8]))
            notes.append(f"ranks differ in {name} ({found} {what}): {cure.format(min(values))}")
    if any(facts.governed for facts in everybody) and not all(facts.watched for facts in everybody):
        notes.append("watch() was not called on each rank, so gradients are not weighted: shares stay even")
    return notes

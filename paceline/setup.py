"""The agreement of the ranks before the first batch of a loader: sizes, seed, and for the first loader the starting
position and shares. One or two small all-reduces.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from controlplane.protocol.agreement import Timeline
from controlplane.protocol.dividing import divide
from controlplane.protocol.orders import Orders
from paceline.channel import AnyChannel
from paceline.cursor import Cursor

if TYPE_CHECKING:
    from paceline.loading import Plan

HALF = 2**32

NOT_KNOWN = -1
"""Marks an unknown starting position."""


class Facts(NamedTuple):
    """One rank's contribution."""

    samples: int
    """Number of samples in its dataset; 0: a stream."""
    batch: int
    """Samples of one rank per iteration."""
    multiple: int
    seed_high: int
    seed_low: int
    drop_last: int
    watched: int
    """Whether its gradients are weighted."""
    awaits_sums: int
    """Whether its CPU waits for each sum of gradients."""
    scales_lr: int
    """Whether its learning rate follows the global batch."""
    governed: int
    """Whether a control plane is configured."""
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
        """The given seed."""
        return self.seed_high * HALF + self.seed_low

    @property
    def newness(self) -> tuple[int, int, int]:
        """A number that is greater for newer orders."""
        return self.incarnation, self.generation, self.sequence


def facts_of(
    plan: "Plan",
    samples: int,
    cursor: Cursor,
    orders: Orders | None,
    *,
    watched: bool,
    awaits_sums: bool,
    scales_lr: bool,
    governed: bool,
    resumed: bool,
) -> Facts:
    """Return the contribution of a rank with this many samples, this plan and these orders."""
    return Facts(
        samples,
        plan.share,
        plan.multiple * plan.accumulate,
        *divmod(plan.seed, HALF),
        int(plan.drop_last),
        int(watched),
        int(awaits_sums),
        int(scales_lr),
        int(governed),
        int(resumed),
        cursor.iteration,
        cursor.number,
        cursor.begin,
        *(orders.rank_in_time if orders is not None else (-1, -1, -1)),
    )


class Start(NamedTuple):
    """The common starting state of all ranks."""

    samples: int
    batches: list[int]
    """Shares of the ranks, if each rank decides by itself."""
    multiple: int
    seed: int
    drop_last: bool
    governed: bool
    fixed: bool
    """Whether shares never change."""
    awaits_sums: bool
    """Whether each rank's CPU waits for sums of gradients."""
    grows: bool
    """Whether each rank's learning rate follows the global batch, so that the batch may grow."""
    iteration: int
    number: int
    begin: int
    timeline: Timeline
    notes: list[str]
    """Errors, for display."""

    @property
    def terms(self) -> tuple[Any, ...]:
        """What holds until a loader has other ones."""
        return (*self[: self._fields.index("iteration")],)

    def after(self, earlier: Timeline, iteration: int) -> "Start":
        """The same where another loader was used before: shares keep their proportions."""
        newest = earlier.newest
        if self.fixed or not newest.version:
            return self._replace(timeline=Timeline(self.batches, first=iteration))
        shares = divide(newest.shares, sum(self.batches), self.multiple)
        return self._replace(timeline=Timeline(shares, first=iteration, version=newest.version))


def agree(channel: AnyChannel | None, rank: int, world: int, own: Facts, orders: Orders | None) -> Start:
    """Agree on the starting state; the result is the same on each rank. Collective."""
    if channel is None:
        facts_of_ranks = [own] * world
    else:
        words = [0.0] * (world * len(own))
        words[rank * len(own) : (rank + 1) * len(own)] = [float(value) for value in own]
        total = [int(value) for value in channel.total(words)]
        facts_of_ranks = [Facts(*total[at : at + len(own)]) for at in range(0, len(total), len(own))]
    first = facts_of_ranks[0]
    samples = min(facts.samples for facts in facts_of_ranks)
    batches = [facts.batch for facts in facts_of_ranks]
    multiple = max(facts.multiple for facts in facts_of_ranks)
    notes = _notes(facts_of_ranks, channel)
    leader = max(range(world), key=lambda each: (facts_of_ranks[each].newness, -each))
    given = [0, 0, NOT_KNOWN, *([0] * world)]
    if channel is not None and facts_of_ranks[leader].newness >= (0, 0, 0):
        if rank == leader and orders is not None:
            fits = len(orders.shares) == world and sum(orders.shares) == sum(batches)
            shares = orders.shares if fits else [0] * world
            begins = NOT_KNOWN if orders.begins is None else orders.begins
            given = [orders.share_from, orders.shares_version if fits else 0, begins, *shares]
        elif rank != leader:
            given[2] = 0
        given = [int(value) for value in channel.total([float(value) for value in given])]
    job_iteration, version, begins, *shares = given
    iteration, number, begin = _where(facts_of_ranks, samples, sum(batches), job_iteration, begins)
    if job_iteration and not samples and not any(facts.resumed for facts in facts_of_ranks):
        notes.append(
            f"the job continues with iteration {job_iteration}, but the position in streams is not known: a pass"
            " begins anew, and repeats samples. Save pacer.state_dict(), and load it after a restart"
        )
    watched = all(facts.watched for facts in facts_of_ranks)
    fits = any(shares) and watched
    return Start(
        samples=samples,
        batches=batches,
        multiple=multiple,
        seed=first.seed,
        drop_last=bool(first.drop_last),
        governed=any(facts.governed for facts in facts_of_ranks),
        fixed=not watched or channel is None,
        awaits_sums=all(facts.awaits_sums for facts in facts_of_ranks),
        grows=all(facts.scales_lr for facts in facts_of_ranks),
        iteration=iteration,
        number=number,
        begin=begin,
        timeline=Timeline(shares if fits else batches, first=iteration, version=version if fits else 0),
        notes=notes,
    )


def _where(
    facts_of_ranks: Sequence[Facts], samples: int, batch: int, job_iteration: int, begins: int
) -> tuple[int, int, int]:
    """Iteration, pass, and position in it: from the script's state, or the job's current ones."""
    resumed = next((facts for facts in facts_of_ranks if facts.resumed), None)
    if resumed is not None:
        return resumed.iteration, resumed.number, resumed.begin
    if not (job_iteration and samples):
        return job_iteration, 0, 0
    drop_last = bool(facts_of_ranks[0].drop_last)
    if begins != NOT_KNOWN:
        number, begin = divmod(begins, samples)
        is_over = drop_last and samples - begin < batch
        return (job_iteration, number + 1, 0) if is_over else (job_iteration, number, begin)
    per_pass = samples // batch if drop_last else -(-samples // batch)
    number, place = divmod(job_iteration, max(1, per_pass))
    return job_iteration, number, place * batch


def _notes(facts_of_ranks: Sequence[Facts], channel: AnyChannel | None) -> list[str]:
    notes = []
    if channel is None:
        notes.append(
            "torch.distributed is not initialised, so the ranks cannot agree on shares: shares stay equal. Call"
            " init_process_group() before the first batch"
        )
    for name, what, cure in (
        ("samples", "samples in its dataset", "all use the first {0}; give each rank the same dataset"),
        ("batch", "samples per iteration", "each rank starts with its own; pass the same batch_size on every rank"),
        ("seed", "as seed", "all use rank 0's; pass the same seed to loader() on every rank"),
        ("multiple", "as multiple of shares", "all use the largest; pass the same multiple to loader() on every rank"),
    ):
        values = [getattr(facts, name) for facts in facts_of_ranks]
        if len(set(values)) > 1:
            found = ", ".join(f"rank {rank} has {value}" for rank, value in enumerate(values[:8]))
            notes.append(f"ranks differ in {name} ({found} {what}): {cure.format(min(values))}")
    alone = [rank for rank, facts in enumerate(facts_of_ranks) if not facts.governed]
    if 0 < len(alone) < len(facts_of_ranks):
        named = ", ".join(map(str, alone[:8])) + (", ..." if len(alone) > 8 else "")
        notes.append(
            f"rank{'s' if len(alone) > 1 else ''} {named} without a control plane: {len(alone)} of"
            f" {len(facts_of_ranks)} report nothing, and the job waits for them. Set PACELINE_URL, PACELINE_JOB and"
            " PACELINE_TOKEN on every node, or start each launcher with `paceline run`"
        )
    if any(facts.governed for facts in facts_of_ranks) and not all(facts.watched for facts in facts_of_ranks):
        notes.append("watch() was not called on each rank, so gradients are not weighted: shares stay equal")
    return notes

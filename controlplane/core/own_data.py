"""How much data each worker has of its own, and that no share takes a sample of it twice in one iteration.

A worker draws from data of its own where the data policy splits them, or where the job divides them (``partition``). A
share above that would repeat samples within an iteration, so it is an upper limit, and others take what it cuts off.
Where all of them together have too few for the global batch, samples do repeat; a flag says whose. A round of a
federation is several passes by design and has no such limit.
"""

from typing import Final

from controlplane.core import flags
from controlplane.core.handling import Handling
from controlplane.core.wording import number_of

KIND: Final = "repeats"

Limits = dict[int, tuple[int, int]]


def held(handling: Handling) -> dict[int, int]:
    """Samples of each counting worker's own; empty where any worker may draw any sample."""
    job, policies = handling.job, handling.chosen
    if handling.spec.federated is not None:
        return {}
    if policies.partitioned is not None:
        return {} if policies.data_state is None else policies.partitioned.held(policies.data_state)
    own = {rank: job.workers[rank].own_samples for rank in job.generation.roster}
    return own if all(own.values()) else {}


def bounds(handling: Handling) -> dict[int, int]:
    """The most that each worker may take; empty where there is no such limit, or it leaves too few samples."""
    own, highest = held(handling), handling.spec.limits.maximum
    most = sum(count if highest is None else min(count, highest) for count in own.values())
    return own if most >= handling.job.batch else {}


def within(handling: Handling, limits: Limits) -> Limits:
    """The limits, where those of the data are as narrow or narrower."""
    own = bounds(handling)
    return {
        rank: (min(low, own.get(rank, low)), min(high, own.get(rank, high))) for rank, (low, high) in limits.items()
    }


def look(handling: Handling) -> None:
    """Raise or close the flags of those whose share is above their own data."""
    job, own = handling.job, held(handling)
    for rank, share in job.generation.shares.items():
        if rank in own and share > own[rank]:
            sentence = (
                f"w{rank} takes {share} samples per iteration of its own {own[rank]}: some repeat within an iteration, "
                f"since all workers together have too few for {job.batch}; use a smaller batch_size or more data"
            )
            flags.open_flag(handling, rank, KIND, "lasting", sentence, {"samples": own[rank], "share": share})
        elif flags.key_of(KIND, "worker", rank) in job.flags.open:
            flags.close_flag(handling, rank, KIND, f"w{rank} has {number_of(own.get(rank, 0), 'sample')} of its own")


def room(handling: Handling) -> int | None:
    """Among how many workers the data can be divided at most, where they are or soon will be; None: any number."""
    job = handling.job
    if not job.samples.count or (handling.chosen.partitioned is None and "data" not in job.requests.choices):
        return None
    return job.samples.count

"""``fill``: the global batch of an attached job grows between passes, up to the user's limit and the ranks' memory.

Shares are balanced already; all grow in proportion, until one rank would use more than a fraction of its memory. The
ranks use the larger batch from their next pass on, and their reports show it. Whether training with a larger batch
converges equally well is not decided here: the user's limit and the job's guard, if there is one, are responsible for
that. With a guard the batch grows only if the guard can judge it, and is reverted if the guard found harm.
"""

from typing import Final

from controlplane.core import sharing
from controlplane.core.choices import Finding, Observation, ShareDecision
from controlplane.core.context import Context, flag_key
from controlplane.core.records import Guarded
from controlplane.core.states import Worker
from controlplane.protocol.base import MAX_INT32
from controlplane.protocol.filling import lr_scale
from controlplane.protocol.noise import combined

MEMORY: Final = 0.9
"""The fraction of a rank's memory up to which its share grows. Memory is assumed to be proportional to the share, which
overestimates it, since parameters do not grow.
"""

AT_ONCE: Final = 2.0
"""Maximum growth factor of the batch from one pass to the next."""

WORTH: Final = 1.05
"""Smaller relative changes are not requested."""

KIND: Final = "fill"
"""Kind of a finding: the learning rate does not follow the batch."""

NOISY: Final = "noise"
"""Kind of a finding: the batch is far above the gradient noise scale."""

FAR: Final = 2.0
"""A batch above this many times the noise scale is far above it. With a noise scale of N, a batch of B samples needs 1
+ N / B times the minimum number of iterations, and 1 + B / N times the minimum number of samples: at 2 N 1.5 times the
iterations, and 3 times the samples.
"""

NEARER: Final = 0.8
"""The finding closes below this fraction of the limit, since the scale is an estimate and fluctuates."""

BLIND: Final = "guard"
"""Kind of a finding: the guard has no loss to compare, so the batch does not grow."""


def begin(context: Context, members: list[Worker]) -> None:
    """A generation begins, with the script's batch; determine whether it may grow."""
    job = context.job
    job.attachment.fill_batch, job.attachment.room = 0, {}
    if context.spec.fill is None:
        return
    job.guarded, job.attachment.noise = Guarded(), {}
    still = [each.title for each in members if each.rank is not None and not each.rank.scales_lr]
    job.attachment.may_fill = not still
    if not still:
        context.close_flag(0, KIND, "the learning rate of every rank follows the batch", subject="job")
    elif flag_key(KIND, "job", 0) not in job.flags.open:
        sentence = (
            f"the global batch stays {job.batch}: {still[0]} does not say that its learning rate follows it; call"
            " pacer.scale_lr(optimizer) before the first batch"
        )
        context.record_findings([Finding(rank=0, kind=KIND, open=True, sentence=sentence, subject="job")])


def review(context: Context, observations: list[Observation]) -> bool:
    """An iteration is complete; return whether ranks must receive another batch."""
    job = context.job
    if context.spec.fill is None or not job.attachment.may_fill or job.generation.is_short:
        return False
    taken = {seen.rank: seen.samples for seen in observations}
    if taken.keys() != job.generation.shares.keys():
        return False
    total, iteration = sum(taken.values()), observations[0].iteration
    if total > job.batch or (total < job.batch and _has_shrunk(context, total, iteration)):
        _adopt(context, taken, iteration)
        return True
    return taken == job.generation.shares and _request_batch(context, observations)


def _has_shrunk(context: Context, total: int, iteration: int) -> bool:
    """Whether the ranks have begun a pass with a smaller batch; the last iteration of a pass is smaller as well."""
    count, begins = context.job.samples.count, context.job.attachment.begins
    was_asked_for = total == context.job.attachment.fill_batch
    if not count:
        return was_asked_for
    begin, end = begins.get(iteration), begins.get(iteration + 1)
    if end is None or end % count == 0:
        return False
    return was_asked_for or (begin is not None and begin % count == 0)


def _adopt(context: Context, taken: dict[int, int], iteration: int) -> None:
    """The ranks have begun a pass with another batch, which was requested, possibly in a lost part of the log."""
    job, fill, base = context.job, context.spec.fill, _base(context)
    assert fill is not None
    total = sum(taken.values())
    job.attachment.fill_batch = total
    job.samples.origin_position = job.attachment.begins.get(iteration, job.samples.origin_position)
    job.samples.origin_iteration, job.samples.global_batch = iteration, total
    reason = (
        f"{total} samples per iteration from iteration {iteration} on, the script has {base}: learning rates are"
        f" multiplied by {lr_scale(fill.learning_rate, total, base):.3g}"
    )
    sharing.take_shares(context, ShareDecision(shares=taken, reason=reason), iteration, announce=True)


def _request_batch(context: Context, observations: list[Observation]) -> bool:
    """Request a larger batch, or withdraw the request; return whether the request changes."""
    job, fill, shares = context.job, context.spec.fill, context.job.generation.shares
    assert fill is not None
    if (bound := _bound(context)) is not None and job.batch > bound:
        return _set_request(context, bound)
    if not all(seen.memory > 0.0 for seen in observations):
        return False
    most = context.spec.limits.maximum
    for seen in observations:
        share, ceiling = shares[seen.rank], job.workers[seen.rank].ceiling
        room = max(share, int(min(share * MEMORY / seen.memory, MAX_INT32)))
        job.attachment.room[seen.rank] = min(room, ceiling or room, room if most is None else most)
    growth = min(job.attachment.room[rank] / share for rank, share in shares.items())
    size = min(int(job.batch * min(growth, AT_ONCE)), int(_base(context) * fill.limit), job.samples.count or MAX_INT32)
    size = size if bound is None else min(size, bound)
    size -= size % sharing.multiple_of(context)
    return _set_request(context, size if size >= WORTH * job.batch and _may_grow(context, size) else 0)


def _set_request(context: Context, size: int) -> bool:
    """Request that batch, or the current one with 0; return whether the request changes."""
    attachment, present = context.job.attachment, context.job.batch
    before = attachment.fill_batch if attachment.fill_batch != present else 0
    if size == before or (size > present and before and 1 / WORTH < size / before < WORTH):
        return False
    attachment.fill_batch = size
    return True


def _bound(context: Context) -> int | None:
    """The batch to which the guard reverted, but at least the script's; None: it has found no harm."""
    most = context.job.attachment.most_batch
    return max(most, _base(context)) if most else None


def noise_scale(context: Context) -> float | None:
    """The gradient noise scale as measured by the ranks, in samples."""
    return combined(context.job.attachment.noise, context.job.generation.shares)


def _may_grow(context: Context, size: int) -> bool:
    """Whether the guard, if there is one, could judge a larger batch, and it is not far above the noise scale."""
    guard, state = context.chosen.guard, context.chosen.guard_state
    if guard is None:
        return True
    if not _is_worth(context, size):
        return False
    if guard.is_blind(state):
        sentence = (
            f"the global batch stays {context.job.batch}: the guard finds no training loss above 0 to compare; call"
            " pacer.step(loss)"
        )
        context.record_findings([Finding(rank=0, kind=BLIND, open=True, sentence=sentence, subject="job")])
    else:
        context.close_flag(0, BLIND, "the guard has a training loss to compare", subject="job")
    return guard.is_ready(state)


def _is_worth(context: Context, size: int) -> bool:
    """Whether a larger batch saves iterations; a guard in mode ``suggest`` only reports if it does not."""
    scale, spec = noise_scale(context), context.spec.guard
    was_far = flag_key(NOISY, "job", 0) in context.job.flags.open
    if scale is None or size <= FAR * scale * (NEARER if was_far else 1.0):
        context.close_flag(0, NOISY, f"a batch of {size} is not far above the gradient-noise scale", subject="job")
        return True
    stays = spec is not None and spec.mode == "revert"
    what = f"the global batch stays {context.job.batch}: {size}" if stays else f"a global batch of {size}"
    sentence = (
        f"{what} is more than {FAR:g} times the gradient-noise scale, {scale:.3g} samples; of more samples in each"
        " iteration hardly fewer iterations are needed"
    )
    context.record_findings([Finding(rank=0, kind=NOISY, open=True, sentence=sentence, subject="job")])
    return not stays


def _base(context: Context) -> int:
    """Samples of one iteration in the script."""
    ranks = [worker.rank for worker in context.job.counting if worker.rank is not None]
    return sum(rank.batch_size for rank in ranks)

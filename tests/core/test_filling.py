"""``fill`` in the engine: when a larger batch is asked for, how its begin is noticed, and where a pass continues."""

from collections.abc import Callable
from typing import Any

import pytest

from controlplane.core.commands import CloseFlag, RaiseFlag, SetShares
from controlplane.core.events import IncarnationBegan
from tests.core.attached import BATCH, Attached

Tell = Callable[..., Attached]
FILL = {"limit": 4.0, "learning_rate": "square-root"}


def iterate(
    story: Attached,
    iterations: range,
    *sizes: int,
    begin: int,
    memory: tuple[float, ...] = (),
    loss: float = 1.0,
) -> int:
    """Every rank reports those iterations, laid side by side from position ``begin`` on; where the next one begins."""
    for iteration in iterations:
        for rank, size in enumerate(sizes):
            report = {"samples": size, "position": begin + sum(sizes[:rank]), "compute_s": size / 1000, "loss": loss}
            story.report(rank, iteration, **report, memory=memory[rank] if memory else 0.3)
        begin += sum(sizes)
    return begin


def filling(tell: Tell, **changes: Any) -> Attached:
    story = tell(fill=FILL, **changes).submitted()
    for rank in range(story.spec.workers):
        story.comes(rank, scales_lr=True)
    return story


def test_as_much_is_requested_as_the_ranks_memory_holds_and_twice_at_most(tell: Tell) -> None:
    story = filling(tell)
    iterate(story, range(6), BATCH, BATCH, begin=0, memory=(0.3, 0.6))
    assert {story.orders[rank].fill_batch for rank in (0, 1)} == {96}
    assert story.orders[0].fill_rule == "square-root"
    story = filling(tell)
    iterate(story, range(6), BATCH, BATCH, begin=0, memory=(0.1, 0.1))
    assert story.orders[0].fill_batch == 128


def test_no_growth_is_requested_where_memory_is_full_or_unknown(tell: Tell) -> None:
    for memory in ((0.3, 0.88), (0.3, 0.0)):
        story = filling(tell)
        iterate(story, range(6), BATCH, BATCH, begin=0, memory=memory)
        assert story.orders[0].fill_batch == 0


def test_a_rank_that_uses_next_to_no_memory_has_bounded_room(tell: Tell) -> None:
    story = filling(tell)
    iterate(story, range(6), BATCH, BATCH, begin=0, memory=(1e-38, 1e-38))
    assert story.orders[0].fill_batch == 128
    story.engine.snapshot()


def test_a_pass_with_the_larger_batch_is_noticed_and_shares_are_divided_of_it(tell: Tell) -> None:
    story = filling(tell, synchronization={"batching": "lb-bsp-linear"})
    at = iterate(story, range(6), BATCH, BATCH, begin=0)
    at = iterate(story, range(6, 8), 64, 64, begin=at)
    told = next(each for each in story.given(SetShares) if sum(each.shares.values()) == 128)
    assert told.reason == (
        "128 samples per iteration from iteration 6 on, the script has 64: learning rates are multiplied by 1.41"
    )
    assert sum(story.orders[0].shares) == story.orders[0].global_batch == 128
    assert story.orders[0].fill_batch == 256
    iterate(story, range(8, 11), 128, 128, begin=at)
    assert sum(story.orders[0].shares) == story.orders[0].fill_batch == 256
    assert story.job.batch == 4 * 64
    story.engine.validate()


def test_a_rank_without_scale_lr_keeps_the_batch_and_is_reported(tell: Tell) -> None:
    story = tell(fill=FILL).submitted()
    story.comes(0, scales_lr=True)
    story.comes(1)
    (flag,) = [each for each in story.given(RaiseFlag) if each.kind == "fill"]
    assert flag.reason == (
        "the global batch stays 64: w1 does not say that its learning rate follows it; call"
        " pacer.scale_lr(optimizer) before the first batch"
    )
    iterate(story, range(6), BATCH, BATCH, begin=0)
    assert story.orders[0].fill_batch == 0
    for rank in (0, 1):
        story.comes(rank, scales_lr=True)
    assert flag.flag in [each.flag for each in story.given(CloseFlag)]


def test_ranks_that_begin_again_have_the_scripts_batch_and_continue_where_the_pass_was(tell: Tell) -> None:
    story = filling(tell)
    at = iterate(story, range(6), BATCH, BATCH, begin=0)
    at = iterate(story, range(6, 8), 64, 64, begin=at)
    for rank in (0, 1):
        story.drops(rank)
    for rank in (0, 1):
        story.comes(rank, scales_lr=True)
        assert story.orders[rank].begins == at
    orders = story.orders[0]
    assert (orders.shares, orders.fill_batch, orders.share_from) == ([BATCH, BATCH], 0, 8)
    assert (orders.begins, orders.origin_iteration, orders.origin_position) == (at, 8, at)


def test_where_a_pass_continues_is_known_with_another_world_size_too(tell: Tell) -> None:
    story = tell(workers=3).running()
    at = iterate(story, range(4), 32, 32, 32, begin=0)
    for rank in range(3):
        story.drops(rank)
    for rank in range(2):
        story.comes(rank, world=2)
        assert story.orders[rank].begins == at


def test_a_batch_that_grew_in_a_lost_part_of_the_log_is_taken_from_the_reports(tell: Tell) -> None:
    story = filling(tell)
    at = iterate(story, range(6), BATCH, BATCH, begin=0)
    story.see(IncarnationBegan(incarnation=1, reason="lost", after="0-1", published=dict(story.orders)))
    story.job.attachment.fill_batch = 0
    iterate(story, range(6, 9), 64, 64, begin=at)
    assert story.job.batch == 128


@pytest.mark.parametrize(("limit", "asked"), [(1.5, 96), (1.04, 0)])
def test_the_users_limit_holds_in_multiples(tell: Tell, limit: float, asked: int) -> None:
    story = tell(fill=FILL | {"limit": limit}, sample_multiple=8).submitted()
    for rank in (0, 1):
        story.comes(rank, scales_lr=True, multiple=8)
    iterate(story, range(6), BATCH, BATCH, begin=0, memory=(0.1, 0.1))
    assert story.orders[0].fill_batch == asked

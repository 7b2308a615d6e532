"""``fill``: how a batch grows at the begin of a pass, and what the learning rate is multiplied by."""

from typing import Any

import pytest

from controlplane.protocol.agreement import Agreement, Row, Timeline
from controlplane.protocol.filling import lr_scale
from controlplane.protocol.spec import SpecError, parse_spec
from tests.protocol.orders import orders


def grown(size: int, *, grows: bool = True, multiple: int = 1, ceilings: tuple[int, int] = (0, 0)) -> list[Agreement]:
    """Two ranks, of which one has heard that ``size`` samples are asked for, behind the last sum of a pass."""
    ranks = [Agreement(rank, Timeline([10, 6]), multiple=multiple, grows=grows) for rank in (0, 1)]
    ranks[0].receive(orders(shares=[10, 6], shares_version=1, fill_batch=size, fill_rule="square-root"))
    words = [each.encode(Row(promised=8, ceiling=ceilings[each.rank])) for each in ranks]
    for each in ranks:
        each.read([sum(column) for column in zip(*words, strict=True)], 8)
        each.begin_pass(9)
    return ranks


def test_the_batch_grows_at_all_ranks_when_a_pass_begins_and_shares_keep_their_proportion() -> None:
    for each in grown(32):
        assert each.timeline.shares(9) == [20, 12]
        assert each.batch == 32
        assert each.lr_scale == pytest.approx(2**0.5)


@pytest.mark.parametrize(
    "given", [{"grows": False}, {"ceilings": (12, 12)}, {"multiple": 3}], ids=["no rule", "no room", "no multiple"]
)
def test_the_batch_stays_where_the_learning_rate_or_memory_or_multiples_forbid_more(given: Any) -> None:
    for each in grown(32, **given):
        assert sum(each.timeline.shares(9)) == each.batch == 16
        assert each.lr_scale == 1.0


def test_a_smaller_batch_is_taken_when_the_next_pass_begins_but_none_below_that_of_the_script() -> None:
    ranks = grown(32)
    for size, batch, scale in ((24, 24, 1.5**0.5), (8, 24, 1.5**0.5), (16, 16, 1.0)):
        for each in ranks:
            told = orders(sequence=size, shares_version=1, fill_batch=size, fill_rule="square-root")
            each.receive(told)
        words = [each.encode(Row(promised=20)) for each in ranks]
        for each in ranks:
            each.read([sum(column) for column in zip(*words, strict=True)], 20)
            each.begin_pass(21)
            assert (each.batch, sum(each.timeline.shares(21))) == (batch, batch)
            assert each.lr_scale == pytest.approx(scale)


def test_room_of_one_rank_takes_what_another_cannot() -> None:
    for each in grown(32, ceilings=(14, 0)):
        assert each.timeline.shares(9) == [14, 18]


def test_shares_of_the_batch_before_are_passed_over_without_a_word() -> None:
    rank = grown(32)[0]
    rank.receive(orders(sequence=2, shares=[8, 8], shares_version=2, fill_batch=32, fill_rule="square-root"))
    assert rank.refusal == ""
    rank.read(rank.encode(Row(promised=9)), 9)
    assert rank.timeline.newest.shares == [20, 12]


def test_rules_of_the_learning_rate() -> None:
    assert lr_scale("linear", 48, 16) == 3.0
    assert lr_scale("square-root", 64, 16) == 2.0
    assert lr_scale("", 64, 16) == 1.0


@pytest.mark.parametrize(
    ("fill", "field"),
    [
        ({"limit": 4}, "fill.learning_rate"),
        ({"learning_rate": "linear"}, "fill.limit"),
        ({"limit": 1, "learning_rate": "linear"}, "fill.limit"),
        ({"limit": 2, "learning_rate": "none"}, "fill.learning_rate"),
    ],
)
def test_a_batch_that_grows_without_a_limit_and_a_rule_is_refused(fill: Any, field: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_spec({"name": "mine", "launch": "attached", "workers": 2, "batch_size": 8, "fill": fill})
    assert refused.value.field == field


def test_a_native_job_has_no_script_whose_learning_rate_could_follow() -> None:
    spec = {"name": "mine", "workload": "digits-mlp", "workers": 2, "batch_size": 8, "stop": {"iterations": 9}}
    with pytest.raises(SpecError) as refused:
        parse_spec(spec | {"fill": {"limit": 2, "learning_rate": "linear"}})
    assert refused.value.field == "fill"

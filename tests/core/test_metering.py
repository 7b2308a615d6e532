"""Shares by energy in the engine: stated and measured power, multiples, and what replays and snapshots keep."""

from typing import Any

import pytest

from controlplane.core.commands import SetShares
from controlplane.core.engine import Engine
from controlplane.policies.registry import resolve
from tests.core.attached import Attached
from tests.core.story import Story

OBJECTIVE = {"objective": "energy", "slack": 0.25}
EFFICIENT = {"idle_watts": 0.0, "busy_watts": 100.0}
THIRSTY = {"idle_watts": 0.0, "busy_watts": 300.0}


def batching(**parameters: Any) -> dict[str, Any]:
    return {"batching": {"name": "lb-bsp-cpu", "predictor": "memoryless", **parameters}}


def story(*powers: dict[str, float] | None, **parameters: Any) -> Story:
    count = len(powers)
    energy = {"workers": list(powers), "idle_watts": 0.0}
    return Story(workers=count, energy=energy, synchronization=batching(**(OBJECTIVE | parameters))).running()


def iterate(told: Story, count: int, joules: dict[int, float] | None = None) -> dict[int, int]:
    """Workers of 640 samples per second each report; their shares after that."""
    for k in range(count):
        for rank in range(told.spec.workers):
            used = {} if joules is None else {"joules": joules[rank]}
            told.report(rank, k, compute_s=told.orders[rank].share / 640, **used)
    return {rank: told.orders[rank].share for rank in range(told.spec.workers)}


def test_samples_go_to_the_efficient_machine_as_far_as_the_slack_allows() -> None:
    told = story(EFFICIENT, THIRSTY)
    assert iterate(told, 6) == {0: 78, 1: 50}
    reason = told.given(SetShares)[-1].reason
    assert "energy within a slack of 25%: " in reason
    assert "less than with the fastest shares, in 122 ms instead of 100 ms" in reason


def test_measured_energy_comes_before_what_is_stated() -> None:
    told = story(EFFICIENT, EFFICIENT)
    shares = iterate(told, 8, joules={0: 50.0, 1: 10.0})
    assert shares == {0: 49, 1: 79}


def test_without_slack_shares_stay_the_fastest() -> None:
    assert iterate(story(EFFICIENT, THIRSTY, slack=0.0), 6) == {0: 64, 1: 64}


def test_reports_are_not_noted_without_their_energy() -> None:
    told = story(EFFICIENT, THIRSTY)
    iterate(told, 4)
    assert told.engine.open_ledger() is None


def test_a_restored_engine_decides_alike() -> None:
    told = story(EFFICIENT, EFFICIENT)
    iterate(told, 5, joules={0: 50.0, 1: 10.0})
    again = Engine.restore(told.engine.snapshot(), resolve=resolve)
    assert again.snapshot() == told.engine.snapshot()


@pytest.mark.parametrize("multiple", [1, 8])
def test_ranks_of_a_launcher_take_whole_micro_batches(multiple: int) -> None:
    told = Attached(
        energy={"workers": [EFFICIENT, THIRSTY]},
        sample_multiple=multiple,
        synchronization={"batching": {"name": "lb-bsp-linear", **OBJECTIVE}},
    ).running()
    told.iterate_at(20, 320.0, 320.0)
    shares = told.orders[0].shares
    assert sum(shares) == 64
    assert shares[0] == (39 if multiple == 1 else 40)
    assert all(share % multiple == 0 for share in shares)

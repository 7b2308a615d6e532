"""Update rules against torch used directly, whole and cut into blocks; schedules; states that travel."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.protocol.optimizers import SCHEDULES
from controlplane.protocol.training import Optimizer, Schedule
from workers.workloads.rules import GradientRule, ProximalRule, SumRule
from workers.workloads.schedules import factor

SPECS = [
    Optimizer(lr=0.1, momentum=0.9, weight_decay=0.01),
    Optimizer(name="adam", lr=0.01, weight_decay=0.01),
    Optimizer(name="adagrad", lr=0.1),
    Optimizer(lr=0.1),
    Optimizer(lr=0.2, schedule=Schedule(name="cosine", warm_up=3, over=10)),
]
REFERENCES: list[Any] = [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.01),
    lambda p: torch.optim.Adagrad(p, lr=0.1),
    lambda p: torch.optim.SGD(p, lr=0.1),
]


def sums(iteration: int, size: int = 12) -> torch.Tensor:
    return torch.sin(torch.arange(size) * (iteration + 1.0)) * 8


@pytest.mark.parametrize(("spec", "reference"), list(zip(SPECS, REFERENCES, strict=False)))
def test_a_rule_is_torchs_optimizer_on_the_mean(spec: Optimizer, reference: Any) -> None:
    values, expected = torch.ones(12), torch.ones(12, requires_grad=True)
    rule, optimizer = GradientRule(values, spec), reference([expected])
    for iteration in range(6):
        rule.apply(sums(iteration), 8)
        expected.grad = sums(iteration) / 8
        optimizer.step()
    torch.testing.assert_close(values, expected.detach())


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=5, deadline=None)
@given(cut=st.integers(1, 11))
def test_block_by_block_is_the_same_as_on_the_whole(spec: Optimizer, cut: int) -> None:
    whole, first, second = torch.ones(12), torch.ones(cut), torch.ones(12 - cut)
    rules = GradientRule(whole, spec), GradientRule(first, spec), GradientRule(second, spec)
    for iteration in range(4):
        total = sums(iteration)
        for rule, part in zip(rules, (total, total[:cut], total[cut:]), strict=True):
            rule.apply(part.clone(), 4)
    torch.testing.assert_close(torch.cat([first, second]), whole)


@pytest.mark.parametrize("spec", SPECS)
def test_a_state_that_travelled_continues_as_if_it_had_stayed(spec: Optimizer) -> None:
    here = torch.ones(12)
    rule = GradientRule(here, spec)
    for iteration in range(3):
        rule.apply(sums(iteration), 4)
    there = here.clone()
    other = GradientRule(there, spec)
    other.restore({name: value.clone() for name, value in rule.state().items()})
    for iteration in range(3, 6):
        rule.apply(sums(iteration), 4)
        other.apply(sums(iteration), 4)
    assert torch.equal(here, there)


def test_the_proximal_step_makes_exact_zeros() -> None:
    values = torch.tensor([1.0, 0.05, -0.02])
    ProximalRule(values, Optimizer(lr=1.0), l1=0.1).apply(torch.zeros(3), 1)
    torch.testing.assert_close(values, torch.tensor([0.9, 0.0, 0.0]))


def test_sums_replace_sums_and_forget_the_older_ones_at_their_rate() -> None:
    values = torch.tensor([8.0])
    rule = SumRule(values, memory=0.25)
    rule.apply(torch.tensor([1.0]), 3)
    assert values.item() == 3.0
    rule.apply(torch.tensor([0.0]), 3, 0.5)
    assert values.item() == 1.5


def test_schedules_by_hand() -> None:
    step = Schedule(name="step", every=10, factor=0.5)
    assert [factor(step, at) for at in (0, 9, 10, 25)] == [1.0, 1.0, 0.5, 0.25]
    cosine = Schedule(name="cosine", over=10, floor=0.1)
    assert [factor(cosine, at) for at in (0, 5, 10, 99)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    falling = Schedule(name="inverse-sqrt", warm_up=4)
    assert [factor(falling, at) for at in (0, 3, 4, 16)] == pytest.approx([0.25, 1.0, 1.0, 0.5])
    assert factor(Schedule(), 10**6) == 1.0


def torchs(schedule: Schedule) -> Any:
    """Torch's own scheduler of the same, without warm-up."""
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "step": ("StepLR", {"step_size": schedule.every, "gamma": schedule.factor}),
        "multistep": ("MultiStepLR", {"milestones": schedule.at, "gamma": schedule.factor}),
        "exponential": ("ExponentialLR", {"gamma": schedule.factor}),
        "cosine": ("CosineAnnealingLR", {"T_max": schedule.over, "eta_min": schedule.floor}),
        "cosine-restarts": (
            "CosineAnnealingWarmRestarts",
            {"T_0": schedule.over, "T_mult": schedule.times, "eta_min": schedule.floor},
        ),
        "linear": (
            "LinearLR",
            {"start_factor": 1.0, "end_factor": schedule.floor, "total_iters": schedule.over},
        ),
        "polynomial": ("PolynomialLR", {"total_iters": schedule.over, "power": schedule.power}),
        "one-cycle": (
            "OneCycleLR",
            {
                "max_lr": 1.0,
                "total_steps": schedule.over,
                "pct_start": schedule.rise,
                "div_factor": 1.0 / schedule.begin,
                "final_div_factor": schedule.begin / schedule.floor if schedule.floor else 1e30,
                "cycle_momentum": False,
            },
        ),
    }
    name, options = kinds[schedule.name]
    assert SCHEDULES[schedule.name] == name
    return lambda optimizer: getattr(torch.optim.lr_scheduler, name)(optimizer, **options)


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(name="step", every=30, factor=0.5),
        Schedule(name="multistep", at=[80, 20, 150], factor=0.3),
        Schedule(name="exponential", every=1, factor=0.98),
        Schedule(name="cosine", over=200, floor=0.05),
        Schedule(name="cosine-restarts", over=30, floor=0.1),
        Schedule(name="cosine-restarts", over=20, times=2),
        Schedule(name="linear", over=120, floor=0.2),
        Schedule(name="polynomial", over=150, power=2.5),
        Schedule(name="one-cycle", over=200),
        Schedule(name="one-cycle", over=200, begin=0.1, rise=0.4, floor=0.01),
    ],
)
def test_schedules_are_torchs_over_200_steps(schedule: Schedule) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    scheduler, theirs = torchs(schedule)(optimizer), []
    for step in range(200):
        theirs.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step < 199:
            scheduler.step()
    assert [factor(schedule, step) for step in range(200)] == pytest.approx(theirs, abs=1e-9)


def test_warm_up_is_torchs_linear_one() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=9)
    for step in range(20):
        assert factor(Schedule(warm_up=10), step) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()


def test_parts_of_a_step_move_the_schedule_by_as_much() -> None:
    whole, parts = torch.zeros(1), torch.zeros(1)
    spec = Optimizer(lr=1.0, schedule=Schedule(name="step", every=2, factor=0.5))
    one, many = GradientRule(whole, spec), GradientRule(parts, spec)
    for _ in range(6):
        one.apply(torch.ones(1), 1)
        for _ in range(10):
            many.apply(torch.ones(1), 1, 0.1)
    torch.testing.assert_close(parts, whole)


@given(name=st.sampled_from(sorted(SCHEDULES)), warm_up=st.integers(0, 50), step=st.integers(0, 5000))
def test_no_schedule_goes_above_the_rate_or_below_zero(name: Any, warm_up: int, step: int) -> None:
    value = factor(Schedule(name=name, warm_up=warm_up, at=[10, 400]), step)
    assert 0.0 <= value <= 1.0
    assert math.isfinite(value)

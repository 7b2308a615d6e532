"""What an update on arrival does follows BSP at equal samples, optimizer by optimizer (ruling 23)."""

import pytest

from benchmarks.training.step_scale import OPTIMIZERS, Run
from controlplane.core.barriers import rule_of
from tests.workers.driver import job_spec

WORKERS, ITERATIONS, SEED = 4, 60, 0
NEAR, FAR = 0.05, 0.1
"""Held-out losses relative to BSP's."""

DRIFTS = sorted(set(OPTIMIZERS) - {"sgd", "asgd"})
"""n steps of an n-th are not one step of these."""


def loss(name: str, rule: str = "") -> float:
    run = Run(OPTIMIZERS[name], WORKERS, SEED)
    return (run.asynchronous(ITERATIONS, rule) if rule else run.synchronous(ITERATIONS)).loss


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_auto_chooses_follows_bsp_at_equal_samples(name: str) -> None:
    rule = rule_of(job_spec(workers=WORKERS, optimizer=OPTIMIZERS[name]), "auto")
    assert isinstance(rule, str)
    assert loss(name, rule) == pytest.approx(loss(name), rel=NEAR)


@pytest.mark.parametrize("name", DRIFTS)
def test_parts_of_steps_are_none_of_an_optimizer_with_a_memory(name: str) -> None:
    assert abs(loss(name, "mean") / loss(name) - 1) > FAR

"""What one update does under a barrier without iterations in common, by optimizer."""

from typing import Any

import pytest

from controlplane.core.barriers import rule_of, step_sentence, stepping_of
from controlplane.core.combinations import misfit
from controlplane.policies.registry import resolve
from controlplane.protocol.spec import Choice, JobSpec, Workload
from controlplane.protocol.training import Clip, Federated, Group, Optimizer
from tests.workers.driver import job_spec

ADAM = Optimizer(name="AdamW")
OWN = Optimizer(name="mine:optimizer")


def spec_of(optimizer: Optimizer, **changes: Any) -> JobSpec:
    return job_spec(workers=4, optimizer=optimizer, **changes)


@pytest.mark.parametrize(
    ("optimizer", "rule"),
    [
        (Optimizer(), "mean"),
        (Optimizer(name="asgd"), "mean"),
        (Optimizer(momentum=0.0), "mean"),
        (Optimizer(momentum=0.9), "average"),
        (Optimizer(options={"momentum": 0.9}), "average"),
        (Optimizer(groups=[Group(parameters="*", name="adam")]), "average"),
        (ADAM, "average"),
        (Optimizer(name="rmsprop"), "average"),
    ],
)
def test_plain_sgd_makes_parts_of_steps_and_all_others_average(optimizer: Optimizer, rule: str) -> None:
    assert rule_of(spec_of(optimizer), None) == rule_of(spec_of(optimizer), "auto") == rule


def test_sums_of_another_kind_and_federations_are_judged_by_what_is_applied() -> None:
    assert rule_of(spec_of(ADAM, workload=Workload(name="k-means")), "auto") == "mean"
    assert rule_of(spec_of(ADAM, federated=Federated()), "auto") == "mean"
    assert rule_of(spec_of(Optimizer(), federated=Federated(server=ADAM)), "auto") == "average"


def test_rules_are_orders_to_servers() -> None:
    adam = spec_of(ADAM)
    assert stepping_of(adam, "auto", 4) == (1.0, 4)
    assert stepping_of(adam, "auto", 4, is_ending=True) == (0.25, 1)
    assert stepping_of(adam, "mean", 4) == (0.25, 1)
    assert stepping_of(adam, "paper", 4) == (1.0, 1)
    assert stepping_of(adam, 0.5, 4) == (0.5, 1)


def test_each_rule_is_reported_in_a_plain_sentence() -> None:
    assert step_sentence(spec_of(Optimizer()), "auto", 4).endswith("as 1/4 of a step: 4 of them are one step.")
    assert step_sentence(spec_of(ADAM), "auto", 4).startswith("Servers add up 4 updates and make one step of adamw")
    assert "a whole step (PSP): 4 times as many" in step_sentence(spec_of(ADAM), "paper", 4)
    assert step_sentence(spec_of(ADAM), 0.5, 4).endswith("as 0.5 of a step.")


@pytest.mark.parametrize("barrier", ["asp", "ssp", "pbsp", "pssp"])
def test_a_norm_over_all_parameters_is_refused_where_no_one_knows_it(barrier: str) -> None:
    clipped = spec_of(Optimizer(clip=Clip(norm=1.0)))
    found = misfit(clipped, resolve("barrier", Choice(name=barrier)))
    assert found is not None
    assert found[0] == "optimizer.clip.norm"
    assert f"none with barrier {barrier}" in found[2]
    assert "Clip by value" in found[2]
    assert misfit(spec_of(Optimizer(clip=Clip(value=1.0))), resolve("barrier", Choice(name=barrier))) is None


@pytest.mark.parametrize("barrier", ["bsp", "aggressive", "backup"])
def test_iterations_in_common_have_a_norm(barrier: str) -> None:
    assert misfit(spec_of(Optimizer(clip=Clip(norm=1.0))), resolve("barrier", Choice(name=barrier))) is None


def test_an_optimizer_of_a_users_own_needs_an_explicit_rule() -> None:
    found = misfit(spec_of(OWN), resolve("barrier", Choice(name="asp")))
    assert found is not None
    assert found[:2] == ("synchronization.barrier.step_scale", "auto")
    for rule in ("mean", "average", "paper", 0.5):
        choice = Choice(name="asp", parameters={"step_scale": rule})
        assert misfit(spec_of(OWN), resolve("barrier", choice)) is None

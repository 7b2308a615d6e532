"""Which parameters are trained by what: patterns of groups, whole tensors, optimizers of a user's own."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from controlplane.protocol.parts import SpecError
from controlplane.protocol.training import Clip, Group, Optimizer
from tests.workers.driver import job_spec
from tests.workers.workloads.test_modules import factory
from workers.workloads.layout import Layout
from workers.workloads.local import NOWHERE, Local
from workers.workloads.rules import GradientRule
from workers.workloads.trained import admit_factories, check_groups, groups_of, parts_of

LAYOUT = Layout.of({"body.weight": (2, 3), "body.bias": (2,), "head.weight": (2, 2), "head.bias": (2,)})
OWN = """
import torch

def element_wise(params, lr=0.5, **options):
    return torch.optim.SGD(params, lr=lr, **options)

element_wise.element_wise = True

class Counting(torch.optim.Optimizer):
    def __init__(self, params, lr=0.5):
        super().__init__(params, {"lr": lr})

    def step(self):
        for group in self.param_groups:
            for each in group["params"]:
                state = self.state[each]
                state["count"] = state.get("count", 0) + 1
                each.sub_(each.grad, alpha=group["lr"] / state["count"])

class Strange(Counting):
    def step(self):
        self.state[self.param_groups[0]["params"][0]]["history"] = []

broken = 3

def no_optimizer(params):
    return "none"
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_optimizers.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_optimizers", raising=False)
    monkeypatch.setattr("workers.workloads.trained._FACTORIES", {})


def own_optimizer(name: str, **fields: object) -> Optimizer:
    optimizer = Optimizer(name=f"own_optimizers:{name}", **fields)  # type: ignore[arg-type]
    admit_factories(job_spec(workers=1, optimizer=optimizer), Local(allow_code=True))
    return optimizer


def test_a_parameter_is_in_the_first_group_that_names_it() -> None:
    optimizer = Optimizer(groups=[Group(parameters=["head.*"]), Group(parameters="*.bias", lr=0.0)])
    assert groups_of(optimizer, LAYOUT) == {"body.weight": 0, "body.bias": 2, "head.weight": 1, "head.bias": 1}


def test_adjacent_parameters_with_equal_options_form_one_part() -> None:
    optimizer = Optimizer(groups=[Group(parameters="head.*", lr=0.0)])
    assert [(each.start, each.stop, each.group) for each in parts_of(optimizer, LAYOUT, 3, 9)] == [(0, 5, 0), (5, 9, 1)]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([Group(parameters="tail.*")], "body.weight, body.bias, head.weight, head.bias"),
        ([Group(parameters=["*.bias", "x"])], "a name or pattern of parameters"),
        ([Group(parameters="*"), Group(parameters="*.bias")], "body.bias, head.bias are taken"),
    ],
)
def test_a_group_without_parameters_is_refused_with_the_names_that_there_are(
    groups: list[Group], expected: str
) -> None:
    with pytest.raises(SpecError, match="groups") as refused:
        check_groups(job_spec(workers=1, optimizer=Optimizer(groups=groups)), LAYOUT)
    assert expected in refused.value.expected


def test_a_rate_of_zero_freezes_a_group() -> None:
    values = torch.ones(14)
    rule = GradientRule(values, Optimizer(groups=[Group(parameters="head.*", lr=0.0)]), layout=LAYOUT)
    rule.apply(torch.ones(14), 1)
    assert values.tolist() == pytest.approx([0.9] * 8 + [1.0] * 6)


def test_groups_need_a_rule_that_knows_where_tensors_lie() -> None:
    with pytest.raises(SpecError, match="has no positions of its tensors"):
        GradientRule(torch.ones(3), Optimizer(groups=[Group(parameters="*")]))


def test_matrices_alone_are_refused_for_other_parameters_with_the_cure() -> None:
    with pytest.raises(SpecError, match=r"body\.bias, head\.bias are not: groups: .*name: adamw"):
        GradientRule(torch.ones(14), Optimizer(name="muon"), layout=LAYOUT)


def test_a_block_of_less_than_all_parameters_is_refused_to_what_needs_them_whole() -> None:
    with pytest.raises(SpecError, match="all-reduce"):
        GradientRule(torch.ones(13), Optimizer(name="adafactor"), layout=LAYOUT)


def test_a_factory_trains_where_the_machine_allows_code_and_is_element_wise_if_declared() -> None:
    values = torch.ones(5)
    optimizer = own_optimizer("element_wise", options={"momentum": 0.5}, lr=0.25)
    GradientRule(values, optimizer, layout=LAYOUT, start=2).apply(torch.ones(5), 1)
    assert values.tolist() == [0.75] * 5
    with pytest.raises(SpecError, match="element_wise = True"):
        GradientRule(torch.ones(5), own_optimizer("Counting"), layout=LAYOUT, start=2)


def test_a_factory_without_a_rate_in_the_spec_has_its_own_and_its_numbers_travel() -> None:
    values = torch.ones(14)
    rule = GradientRule(values, own_optimizer("Counting"), layout=LAYOUT)
    rule.apply(torch.ones(14), 1)
    other = GradientRule(values, own_optimizer("Counting"), layout=LAYOUT)
    other.restore(rule.state())
    other.apply(torch.ones(14), 1)
    assert values.tolist() == pytest.approx([0.25] * 14)


def test_what_cannot_travel_is_reported() -> None:
    rule = GradientRule(torch.ones(14), own_optimizer("Strange"), layout=LAYOUT)
    rule.apply(torch.ones(14), 1)
    with pytest.raises(ValueError, match="remembers history as list"):
        rule.state()


def test_a_state_of_another_optimizer_is_left_and_a_new_one_begun() -> None:
    values = torch.ones(14)
    momentum = GradientRule(values, Optimizer(momentum=0.9), layout=LAYOUT)
    momentum.apply(torch.ones(14), 1)
    rule = GradientRule(values, Optimizer(name="adam"), layout=LAYOUT)
    rule.restore(momentum.state())
    rule.apply(torch.ones(14), 1)
    assert {"exp_avg", "steps"} <= rule.state().keys()


@pytest.mark.parametrize(
    ("name", "local", "expected"),
    [
        ("own_optimizers:element_wise", NOWHERE, "--allow-code"),
        ("nowhere_at_all:x", Local(allow_code=True), "ModuleNotFoundError"),
        ("own_optimizers:broken", Local(allow_code=True), "a callable 'broken'"),
    ],
)
def test_a_factory_that_cannot_be_had_is_reported(name: str, local: Local, expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        admit_factories(job_spec(workers=1, optimizer=Optimizer(name=name)), local)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [("no_optimizer", {}, "not of a str"), ("element_wise", {"x": 1}, "unexpected keyword argument 'x'")],
)
def test_a_factory_that_makes_none_is_reported(name: str, options: dict[str, object], expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        GradientRule(torch.ones(14), own_optimizer(name, options=options), layout=LAYOUT)


@pytest.mark.parametrize("cut", [20, 60, 90])
def test_a_network_with_batch_norm_trains_equally_whole_and_in_blocks(cut: int) -> None:
    """AdamW with groups and clipping by norm: the whole as in all-reduce, two blocks as on two servers, one moved."""
    optimizer = Optimizer(
        name="adamw",
        lr=0.01,
        options={"betas": [0.9, 0.95]},
        groups=[Group(parameters=["*.bias", "1.weight"], weight_decay=0.0)],
        clip=Clip(norm=0.5),
    )
    workload: Any = factory()
    whole = torch.from_numpy(workload.init(3))
    parts = [whole[:cut].clone(), whole[cut:].clone()]
    replica, alone = workload.replica(), workload.rule(whole, optimizer)
    rules = [workload.rule(parts[0], optimizer, start=0), workload.rule(parts[1], optimizer, start=cut)]
    for step in range(6):
        np.copyto(replica.parameters, whole.numpy())
        replica.update(np.arange(step * 20, step * 20 + 20))
        total = torch.from_numpy(replica.gradient.copy())
        alone.apply(total.clone(), 20)
        totals = [total[:cut].clone(), total[cut:].clone()]
        squares = [rule.squared_norm(of, 20) for rule, of in zip(rules, totals, strict=True)]
        if step == 3:
            state = {name: each.clone() for name, each in rules[1].state().items()}
            rules[1] = workload.rule(parts[1], optimizer, start=cut)
            rules[1].restore(state)
        for rule, of in zip(rules, totals, strict=True):
            rule.apply(of, 20, norm=sum(squares) ** 0.5)
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-6, atol=1e-6)

"""The table of optimizers against the torch that is installed, and what a spec may say about them."""

import inspect
from typing import Any

import msgspec
import pytest
import torch

from controlplane.protocol.catalogue import check_training
from controlplane.protocol.optimizers import (
    OPTIMIZERS,
    REFUSED,
    SCHEDULES,
    check_optimizer,
    describe_optimizers,
    setting_of,
    setting_of_group,
)
from controlplane.protocol.parts import SpecError
from controlplane.protocol.spec import parse_spec, spec_document
from controlplane.protocol.training import Group, Optimizer, Schedule

OWN_FIELDS = {"self", "params", "lr", "foreach", "fused", "maximize", "capturable", "differentiable"}
"""Of torch's constructors, what is no option of a job: a field of its own, or how torch is to do the same."""


AGGREGATING = {"server_mode": "aggregating", "elastic": {"restarts": 0}}


def classes() -> set[str]:
    found = {name for name, kind in vars(torch.optim).items() if inspect.isclass(kind)}
    return found - {"Optimizer"}


def test_every_optimizer_of_torch_is_known_or_refused_with_why() -> None:
    assert {entry.torch.lower() for entry in OPTIMIZERS.values()} | set(REFUSED) == {n.lower() for n in classes()}


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_options_and_defaults_are_torchs(name: str) -> None:
    entry = OPTIMIZERS[name]
    parameters = inspect.signature(getattr(torch.optim, entry.torch)).parameters
    if name == "sgd":
        assert entry.lr == 0.1
    else:
        assert entry.lr == parameters["lr"].default
    theirs = {key: found.default for key, found in parameters.items() if key not in OWN_FIELDS}
    assert {info.name: info.default for info in msgspec.structs.fields(entry.options)} == theirs


@pytest.mark.parametrize("name", [entry.name for entry in OPTIMIZERS.values() if entry.fused])
def test_fused_ones_are_fused_on_processors(name: str) -> None:
    values = torch.zeros(3)
    values.grad = torch.ones(3)
    getattr(torch.optim, OPTIMIZERS[name].torch)([values], fused=True).step()


def test_schedules_are_torchs_by_name() -> None:
    assert all(hasattr(torch.optim.lr_scheduler, name) for name in SCHEDULES.values() if name is not None)


@pytest.mark.parametrize("name", ["AdamW", "adamw", "ADAMW", "torch.optim.AdamW"])
def test_a_name_may_be_written_in_any_case(name: str) -> None:
    assert setting_of(Optimizer(name=name)).name == "adamw"


def test_fields_of_older_specs_are_short_for_options() -> None:
    found = setting_of(Optimizer(name="adam", lr=0.01, weight_decay=0.1, beta1=0.8, beta2=0.99, epsilon=1e-6))
    assert found.options == {"weight_decay": 0.1, "betas": (0.8, 0.99), "eps": 1e-6}
    stored = Optimizer(name="adagrad", momentum=0.0, weight_decay=0.0, beta1=0.9, beta2=0.999, epsilon=1e-8)
    assert setting_of(stored).options == {"weight_decay": 0.0, "eps": 1e-8}
    assert setting_of(Optimizer(momentum=0.9)).options == {"momentum": 0.9}
    assert setting_of(Optimizer(name="adam", beta2=0.95)).options == {"betas": (0.9, 0.95)}


def test_a_group_reports_what_is_different_and_another_optimizer_begins_anew() -> None:
    optimizer = Optimizer(
        name="adamw",
        lr=0.01,
        options={"betas": [0.9, 0.95]},
        groups=[
            Group(parameters="*.bias", weight_decay=0.0),
            Group(parameters=["head.*"], lr=0.1),
            Group(parameters="*", name="SGD"),
        ],
    )
    bias, head, others = (setting_of_group(optimizer, at) for at in range(3))
    assert (bias.name, bias.lr, bias.options) == ("adamw", 0.01, {"betas": (0.9, 0.95), "weight_decay": 0.0})
    assert (head.lr, head.options) == (0.1, {"betas": (0.9, 0.95)})
    assert (others.name, others.lr, others.options) == ("sgd", 0.1, {})


@pytest.mark.parametrize(
    ("optimizer", "field", "expected"),
    [
        ({"name": "lion"}, "optimizer.name", "one of adadelta"),
        ({"name": "LBFGS"}, "optimizer.name", "several times within one step"),
        ({"name": "SparseAdam"}, "optimizer.name", "sparse"),
        ({"name": "adamw", "options": {"beta": 1}}, "optimizer.options.beta", "an option of adamw: betas, eps"),
        ({"name": "adamw", "options": {"betas": [0.9]}}, "optimizer.options.betas", "length 2"),
        ({"name": "adamw", "options": {"betas": [0.9, 1.0]}}, "optimizer.options.betas", "< 1.0"),
        ({"name": "sgd", "options": {"nesterov": True}}, "optimizer.options.nesterov", "momentum"),
        ({"name": "sgd", "options": {"fused": True}}, "optimizer.options.fused", "an option of sgd"),
        ({"name": "adam", "momentum": 0.9}, "optimizer.momentum", "none with adam"),
        ({"momentum": 0.9, "options": {"momentum": 0.5}}, "optimizer.momentum", "only one of"),
        ({"clip": {}}, "optimizer.clip", "either norm or value"),
        ({"clip": {"norm": 1.0, "value": 1.0}}, "optimizer.clip", "either norm or value"),
        ({"clip": {"norm": 0}}, "optimizer.clip.norm", "> 0.0"),
        ({"groups": [{"parameters": []}]}, "optimizer.groups[0].parameters", "at least one"),
        ({"groups": [{"parameters": "*", "name": "x"}]}, "optimizer.groups[0].name", "one of"),
        ({"groups": [{"parameters": "*", "options": {"x": 1}}]}, "optimizer.groups[0].options.x", "an option of sgd"),
        ({"schedule": {"name": "ReduceLROnPlateau"}}, "optimizer.schedule.name", "no metric"),
        ({"schedule": {"name": "cosin"}}, "optimizer.schedule.name", "one of constant"),
        ({"schedule": {"name": "multistep"}}, "optimizer.schedule.at", "at least one step"),
        ({"name": "muon"}, "optimizer.name", "communication: all-reduce"),
        ({"groups": [{"parameters": "*", "name": "Adafactor"}]}, "optimizer.groups[0].name", "whole ones"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(optimizer: dict[str, Any], field: str, expected: str) -> None:
    with pytest.raises(SpecError) as refused:
        check_training(parse_spec(document(optimizer=optimizer)))
    assert refused.value.field == field
    assert expected in refused.value.expected


@pytest.mark.parametrize("changes", [{"communication": "all-reduce"}, AGGREGATING])
def test_who_holds_whole_tensors_may_train_by_any_optimizer(changes: dict[str, Any]) -> None:
    check_training(parse_spec(document(optimizer={"name": "Muon"}, **changes)))


def test_clients_of_a_federation_hold_whole_tensors_and_servers_do_not() -> None:
    check_training(parse_spec(document(optimizer={"name": "adafactor"}, federated={})))
    with pytest.raises(SpecError, match=r"federated\.server\.name"):
        check_training(parse_spec(document(federated={"server": {"name": "adafactor"}})))


def test_a_spec_with_everything_reads_back_as_it_was() -> None:
    optimizer = {
        "name": "adamw",
        "lr": 0.001,
        "options": {"betas": [0.9, 0.95]},
        "groups": [{"parameters": "*.bias", "weight_decay": 0.0}],
        "clip": {"norm": 1.0},
        "schedule": {"name": "OneCycleLR", "over": 400},
    }
    spec = parse_spec(document(optimizer=optimizer))
    check_training(spec)
    assert parse_spec(spec_document(spec)) == spec


def test_a_schedule_may_be_written_as_torch_calls_it() -> None:
    check_optimizer(Optimizer(schedule=Schedule(name="CosineAnnealingWarmRestarts")))


def test_every_optimizer_is_described_for_forms() -> None:
    described = {each["name"]: each for each in describe_optimizers()}
    assert described["adamw"]["defaults"]["weight_decay"] == 0.01
    assert not described["muon"]["element_wise"]
    assert msgspec.json.encode(described)


def document(**changes: Any) -> dict[str, Any]:
    plain = {"name": "o", "workload": {"name": "cnn"}, "workers": 2, "batch_size": 8, "stop": {"iterations": 1}}
    return plain | changes

"""What a job may name, and what is said where it may not; the machine carries out what the table promises."""

from typing import Any

import msgspec
import pytest
import torch

from controlplane.protocol.catalogue import DATASETS, WORKLOADS, check_training, check_workload, describe
from controlplane.protocol.parts import SpecError
from controlplane.protocol.training import Clip, Federated, Optimizer, Workload
from tests.workers.driver import job_spec
from workers.workloads.catalogue import MAKERS, SIZES, load_workload


def size_of(name: str, dataset: str, **options: Any) -> int:
    return sum(load_workload(Workload(name=name, dataset=dataset, options=options)).layout.sizes)


def test_machines_have_every_workload_that_is_accepted() -> None:
    assert MAKERS.keys() | SIZES.keys() == WORKLOADS.keys()


@pytest.mark.parametrize(
    ("name", "dataset", "parameters"),
    [
        ("softmax-regression", "digits", 650),
        ("cnn", "digits", 6090),
        ("lenet-5", "mnist-like", 61_706),
        ("cifarnet", "cifar-like", 145_578),
        ("resnet", "cifar-like", 464_154),  # 0.46 million, as He et al. have it
        ("femnist-cnn", "femnist-like", 6_603_710),  # as LEAF has it
        ("lstm", "keywords-like", 22_666),
        ("vgg16-shape", "none", 138_357_544),
        ("resnet50-shape", "none", 25_557_032),
        ("alexnet-shape", "none", 61_100_840),
    ],
)
def test_networks_have_as_many_parameters_as_their_papers_state(name: str, dataset: str, parameters: int) -> None:
    assert size_of(name, dataset) == parameters


def test_scale_keeps_that_share_of_each_tensor() -> None:
    assert size_of("vgg16-shape", "none", scale=0.01) == pytest.approx(1_383_575, abs=32)


@pytest.mark.parametrize(
    ("spec", "field", "expected"),
    [
        ({"name": "transformer"}, "workload.name", "one of alexnet-shape, als, cifarnet"),
        ({"name": "cnn", "dataset": "imagenet"}, "workload.dataset", "one of cifar-10, cifar-like, digits"),
        ({"name": "ridge", "dataset": "digits"}, "workload.dataset", "one of diabetes, lines for ridge"),
        ({"name": "logistic-regression"}, "workload.dataset", "one of breast-cancer, svmlight, urls-like"),
        ({"name": "cnn", "options": {"depth": 3}}, "workload.options.depth", "none: cnn has no options"),
        ({"name": "mlp", "options": {"layers": 3}}, "workload.options.layers", "an option of mlp: hidden"),
        ({"name": "mlp", "options": {"hidden": [0]}}, "workload.options.hidden", "`int` >= 1"),
        ({"name": "resnet", "dataset": "cifar-10"}, "workload.data.path", "a value: cifar-10 needs it"),
        ({"name": "cnn", "data": {"samples": 9}}, "workload.data.samples", "none: digits has no options"),
    ],
)
def test_what_cannot_be_is_named_with_what_can(spec: dict[str, Any], field: str, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_workload(Workload(**spec))
    assert caught.value.field == field
    assert expected in caught.value.expected


@pytest.mark.parametrize("name", ["lenet-5", "cifarnet"])
def test_samples_too_small_for_a_network_are_refused_before_anything_is_computed(name: str) -> None:
    data = {"path": "there", "side": 2}
    with pytest.raises(SpecError, match=rf"samples that fit {name}: those of 1 x 2 x 2 do not"):
        load_workload(Workload(name=name, dataset="idx", data=data))


def test_every_entry_describes_its_options_with_defaults_and_a_schema() -> None:
    rows = {row["name"]: row for row in describe()}
    assert rows.keys() == WORKLOADS.keys()
    assert rows["mlp"]["defaults"] == {"hidden": [64]}
    assert rows["mlp"]["schema"]["properties"]["hidden"]["description"].startswith("Units of each")
    (wav,) = [data for data in rows["lstm"]["data"] if data["name"] == "speech-commands"]
    assert wav["schema"]["required"] == ["path"]
    assert {name for row in rows.values() for name in row["datasets"]} == set(DATASETS)
    msgspec.json.encode(describe())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"federated": Federated()}, "federated: found 'k-means', expected a workload of gradients"),
        ({"aggregation": "naive"}, "aggregation: found 'naive', expected none: k-means adds up by its own rule"),
        ({"optimizer": Optimizer(clip=Clip(norm=1.0))}, "optimizer.clip: found 'k-means', expected none"),
    ],
)
def test_sums_of_another_kind_are_added_up_by_the_workloads_own_rule(changes: Any, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        check_training(job_spec(workers=2, workload=Workload(name="k-means"), **changes))


def test_momentum_is_for_sgd_alone() -> None:
    workload = load_workload(Workload(name="cnn"))
    with pytest.raises(SpecError, match=r"optimizer\.momentum: found 0\.9, expected none with adam"):
        workload.rule(torch.zeros(3), Optimizer(name="adam", momentum=0.9))


def test_an_unknown_optimizer_is_named_with_those_there_are() -> None:
    workload = load_workload(Workload(name="cnn"))
    with pytest.raises(SpecError, match=r"optimizer\.name: found 'lion', expected one of adadelta, adafactor, adagrad"):
        workload.rule(torch.zeros(3), Optimizer(name="lion"))

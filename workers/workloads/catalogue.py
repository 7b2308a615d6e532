"""Creates the workload that a spec names."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn

from controlplane.protocol import options as opt
from controlplane.protocol.catalogue import DATASETS, check_workload, data_of, is_foreign, settings_of
from controlplane.protocol.parts import SpecError
from controlplane.protocol.training import Init, Precision
from controlplane.protocol.training import Workload as WorkloadSpec
from workers.workloads import objectives
from workers.workloads.als import Als
from workers.workloads.data.bundled import bundled
from workers.workloads.data.examples import Dataset
from workers.workloads.data.files import from_files
from workers.workloads.data.generated import generated
from workers.workloads.foreign import load_foreign
from workers.workloads.k_means import KMeans
from workers.workloads.local import NOWHERE, Local
from workers.workloads.models import convolutional, sizes
from workers.workloads.models.linear import Linear, Mlp
from workers.workloads.models.recurrent import Lstm
from workers.workloads.models.resnet import ResNet
from workers.workloads.network import Network, check_fit
from workers.workloads.objectives import Objective
from workers.workloads.rules import ProximalRule
from workers.workloads.shape import Workload
from workers.workloads.traffic import Traffic

Make = Callable[[Dataset, Any, Local], Workload]


def load_workload(spec: WorkloadSpec, local: Local = NOWHERE) -> Workload:
    """Create the workload that a job names, for a machine with the settings ``local``.

    Raises:
        SpecError: with the field, what was found, and what exists.
        DataError: if the dataset consists of files, and this machine has none.
    """
    check_workload(spec)
    if is_foreign(spec):
        return load_foreign(spec, local)
    return _begin_with(_computed_in(_made(spec, local), spec.precision), spec.init or "seed")


def begins_with_module(spec: WorkloadSpec) -> bool:
    """Whether version 0 depends on the user's code or the construction of a module, not only on the seed."""
    return is_foreign(spec) or spec.init == "module"


def _computed_in(workload: Workload, precision: Precision) -> Workload:
    """The workload in that precision; ``check_workload`` refuses workloads that do not support it."""
    if isinstance(workload, Network):
        workload.precision = precision
    return workload


def _begin_with(workload: Workload, init: Init) -> Workload:
    """The workload with the initial parameters that the spec chooses.

    Raises:
        SpecError: if the workload does not offer the choice.
    """
    if isinstance(workload, Network):
        workload.begins_with = init
    elif init == "module":
        raise SpecError("workload.init", init, "seed: this workload is not a torch module with its own values")
    return workload


def _made(spec: WorkloadSpec, local: Local) -> Workload:
    if DATASETS[spec.dataset].kind == "traffic":
        options = settings_of(spec)
        return Traffic(SIZES[spec.name](), scale=options.scale, samples=data_of(spec).samples)
    return MAKERS[spec.name](load_dataset(spec, local), settings_of(spec), local)


def load_dataset(spec: WorkloadSpec, local: Local = NOWHERE) -> Dataset:
    """The dataset that a job names; nothing is read yet.

    Raises:
        DataError: if it consists of files, and this machine has none.
    """
    options = data_of(spec)
    if type(options) is opt.NoOptions:
        return bundled(spec.dataset)
    if hasattr(options, "path"):
        return from_files(spec.dataset, options, local.data_dir)
    return generated(spec.dataset, options)


def _features(dataset: Dataset) -> int:
    features = 1
    for extent in dataset.facts.shape:
        features *= extent
    return features


def _linear(objective: Objective, *, bias: bool = True) -> Make:
    def make(dataset: Dataset, options: Any, local: Local) -> Workload:
        outputs = objective.outputs(dataset.facts.classes)
        build = partial(Linear, _features(dataset), outputs, bias=bias)
        return Network(build, dataset, objective, l2=options.l2, device=local.device)

    return make


def _lasso(dataset: Dataset, options: opt.LassoOptions, local: Local) -> Workload:
    """Without a bias, which must not be penalized: targets have mean 0."""
    build = partial(Linear, _features(dataset), 1, bias=False)
    rule = partial(ProximalRule, l1=options.l1)
    return Network(build, dataset, objectives.SQUARED, make_rule=rule, device=local.device)


def _classifier(name: str, module: Callable[[Dataset, Any], nn.Module]) -> Make:
    def make(dataset: Dataset, options: Any, local: Local) -> Workload:
        build = partial(module, dataset, options)
        check_fit(name, build, dataset)
        return Network(build, dataset, objectives.CROSS_ENTROPY, device=local.device)

    return make


def _convolutional(name: str, module: Callable[[tuple[int, ...], int], nn.Module]) -> Make:
    return _classifier(name, lambda data, _: module(data.facts.shape, data.facts.classes))


def _lstm(dataset: Dataset, options: opt.LstmOptions) -> nn.Module:
    *channels, _, bands = dataset.facts.shape
    inputs = bands * (channels[0] if channels else 1)
    return Lstm(inputs, dataset.facts.classes, hidden=options.hidden, layers=options.layers)


MAKERS: Mapping[str, Make] = {
    "softmax-regression": _linear(objectives.CROSS_ENTROPY),
    "logistic-regression": _linear(objectives.LOG_ODDS),
    "linear-svm": _linear(objectives.MARGIN),
    "ridge": _linear(objectives.SQUARED),
    "lasso": _lasso,
    "k-means": lambda dataset, options, _: KMeans(dataset, options),
    "als": lambda dataset, options, _: Als(dataset, options),
    "mlp": _classifier("mlp", lambda data, o: Mlp(_features(data), o.hidden, data.facts.classes)),
    "cnn": _convolutional("cnn", convolutional.small_cnn),
    "lenet-5": _convolutional("lenet-5", convolutional.lenet_5),
    "cifarnet": _convolutional("cifarnet", convolutional.cifarnet),
    "femnist-cnn": _convolutional("femnist-cnn", convolutional.femnist_cnn),
    "resnet": _classifier(
        "resnet", lambda data, o: ResNet(data.facts.shape[0], data.facts.classes, depth=o.depth, width=o.width)
    ),
    "lstm": _classifier("lstm", _lstm),
}
"""Workloads with data, by name."""

SIZES: Mapping[str, Callable[[], dict[str, int]]] = {
    "vgg16-shape": sizes.vgg16,
    "resnet50-shape": sizes.resnet50,
    "alexnet-shape": sizes.alexnet,
}
"""Workloads of tensors without data, by name."""

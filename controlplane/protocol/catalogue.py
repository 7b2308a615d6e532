"""The catalogue of workloads and datasets by name, with their options.

Control plane and machines use the same table, so every accepted job can be run.
"""

from collections.abc import Mapping
from typing import Any, Literal

from controlplane.protocol import options as opt
from controlplane.protocol.base import Value
from controlplane.protocol.optimizers import check_optimizers
from controlplane.protocol.parts import Part, SpecError
from controlplane.protocol.settings import described, settings_from
from controlplane.protocol.spec import JobSpec
from controlplane.protocol.training import Workload

Kind = Literal["rows", "images", "series", "sparse", "targets", "ratings", "traffic"]
"""The kind of samples: rows of numbers, images, series of rows, sparse rows (these four with a class each), rows with a
regression target, users with ratings, or none.
"""


class DatasetEntry(Value, frozen=True, kw_only=True):
    """One dataset, or one file format."""

    name: str
    kind: Kind
    explanation: str
    options: type[Part] = opt.NoOptions
    binary: bool = False
    """Whether it has two classes, unless options say otherwise."""


class WorkloadEntry(Value, frozen=True, kw_only=True):
    """One workload and its possible datasets."""

    name: str
    explanation: str
    takes: tuple[Kind, ...]
    options: type[Part] = opt.NoOptions
    binary: bool = False
    """Whether it is a binary classification."""
    sums: bool = False
    """Whether its updates are sums other than gradients, applied by its own rule."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets that it can be trained on, by name."""
        return tuple(sorted(name for name, entry in DATASETS.items() if self._fits(entry)))

    def _fits(self, dataset: DatasetEntry) -> bool:
        return dataset.kind in self.takes and (dataset.binary or not self.binary)


def _table(*entries: Any) -> dict[str, Any]:
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: entry.name)}


DATASETS: Mapping[str, DatasetEntry] = _table(
    DatasetEntry(name="digits", kind="images", explanation="1,797 digits of 8 x 8 pixels, from scikit-learn."),
    DatasetEntry(
        name="breast-cancer",
        kind="rows",
        explanation="569 tumours by 30 measurements, benign or malignant, from scikit-learn.",
        binary=True,
    ),
    DatasetEntry(name="wine", kind="rows", explanation="178 wines of 3 growers by 13 measurements, from scikit-learn."),
    DatasetEntry(
        name="diabetes", kind="targets", explanation="442 patients, 10 measurements and a score, from scikit-learn."
    ),
    DatasetEntry(name="blobs", kind="rows", explanation="Gaussian clouds, generated.", options=opt.BlobsData),
    DatasetEntry(name="lines", kind="targets", explanation="A sparse linear rule, generated.", options=opt.LinesData),
    DatasetEntry(
        name="urls-like",
        kind="sparse",
        explanation="Sparse rows like those of malicious URLs, generated.",
        options=opt.UrlsData,
        binary=True,
    ),
    DatasetEntry(
        name="mnist-like", kind="images", explanation="28 x 28 grey images, generated.", options=opt.ImagesData
    ),
    DatasetEntry(
        name="cifar-like", kind="images", explanation="32 x 32 colour images, generated.", options=opt.ImagesData
    ),
    DatasetEntry(
        name="femnist-like",
        kind="images",
        explanation="28 x 28 signs of 62 kinds by many writers, generated.",
        options=opt.WritersData,
    ),
    DatasetEntry(
        name="keywords-like", kind="series", explanation="Series of spectra, generated.", options=opt.KeywordsData
    ),
    DatasetEntry(
        name="movielens-like",
        kind="ratings",
        explanation="Ratings of items by users, generated.",
        options=opt.RatingsData,
    ),
    DatasetEntry(
        name="none", kind="traffic", explanation="No data: for shapes of parameters.", options=opt.TrafficData
    ),
    DatasetEntry(
        name="cifar-10",
        kind="images",
        explanation="Files of CIFAR-10 in their binary form.",
        options=opt.FolderData,
    ),
    DatasetEntry(name="idx", kind="images", explanation="Files of MNIST or EMNIST.", options=opt.IdxData),
    DatasetEntry(name="femnist", kind="images", explanation="LEAF's JSON files of FEMNIST.", options=opt.FolderData),
    DatasetEntry(
        name="svmlight",
        kind="sparse",
        explanation="Sparse rows in svmlight's form.",
        options=opt.SvmlightData,
        binary=True,
    ),
    DatasetEntry(name="speech-commands", kind="series", explanation="Folders of recorded words.", options=opt.WavData),
)
"""Data sets by the name in a job's spec."""

_CLASSIFIED: tuple[Kind, ...] = ("rows", "images", "series", "sparse")
_DENSE: tuple[Kind, ...] = ("rows", "images", "series")

WORKLOADS: Mapping[str, WorkloadEntry] = _table(
    WorkloadEntry(
        name="softmax-regression",
        explanation="One linear layer with softmax.",
        takes=_CLASSIFIED,
        options=opt.LinearOptions,
    ),
    WorkloadEntry(
        name="logistic-regression",
        explanation="The log-odds of one of two classes, linear.",
        takes=_CLASSIFIED,
        options=opt.LinearOptions,
        binary=True,
    ),
    WorkloadEntry(
        name="linear-svm",
        explanation="A linear support vector machine: margins between classes.",
        takes=_CLASSIFIED,
        options=opt.LinearOptions,
    ),
    WorkloadEntry(
        name="ridge",
        explanation="Linear least squares with a quadratic penalty.",
        takes=("targets",),
        options=opt.RidgeOptions,
    ),
    WorkloadEntry(
        name="lasso",
        explanation="Linear least squares with an absolute penalty: most weights become zero.",
        takes=("targets",),
        options=opt.LassoOptions,
    ),
    WorkloadEntry(
        name="k-means",
        explanation="Centres of clusters; sums and counts add up instead of gradients.",
        takes=_DENSE,
        options=opt.KMeansOptions,
        sums=True,
    ),
    WorkloadEntry(
        name="als",
        explanation="Factors of users and items by alternating least squares; normal equations add up.",
        takes=("ratings",),
        options=opt.AlsOptions,
        sums=True,
    ),
    WorkloadEntry(name="mlp", explanation="Fully connected layers with ReLU.", takes=_DENSE, options=opt.MlpOptions),
    WorkloadEntry(name="cnn", explanation="Two small convolutional layers and a linear one.", takes=("images",)),
    WorkloadEntry(name="lenet-5", explanation="LeNet-5.", takes=("images",)),
    WorkloadEntry(name="cifarnet", explanation="Caffe's quick network for CIFAR-10.", takes=("images",)),
    WorkloadEntry(
        name="resnet",
        explanation="A residual network for small images, ResNet-32 by default, with group norm.",
        takes=("images",),
        options=opt.ResNetOptions,
    ),
    WorkloadEntry(name="femnist-cnn", explanation="LEAF's convolutional network for FEMNIST.", takes=("images",)),
    WorkloadEntry(
        name="lstm",
        explanation="A recurrent network that reads a series, or an image row by row.",
        takes=("series", "images"),
        options=opt.LstmOptions,
    ),
    WorkloadEntry(
        name="vgg16-shape",
        explanation="The parameters of VGG16 without its work: traffic for placements.",
        takes=("traffic",),
        options=opt.ShapeOptions,
    ),
    WorkloadEntry(
        name="resnet50-shape",
        explanation="The parameters of ResNet50 without its work: traffic for placements.",
        takes=("traffic",),
        options=opt.ShapeOptions,
    ),
    WorkloadEntry(
        name="alexnet-shape",
        explanation="The parameters of AlexNet without its work: traffic for placements.",
        takes=("traffic",),
        options=opt.ShapeOptions,
    ),
)
"""Workloads by the name in a job's spec."""


def describe() -> list[dict[str, Any]]:
    """Describe every workload by name, for forms and users, with JSON schemas of options."""
    data = {name: _described(entry) for name, entry in DATASETS.items()}
    return [
        _described(entry) | {"datasets": list(entry.datasets), "data": [data[name] for name in entry.datasets]}
        for entry in WORKLOADS.values()
    ]


def is_foreign(workload: Workload) -> bool:
    """Whether the workload is a user's own, ``package.module:factory``; only machines know its options."""
    return ":" in workload.name


def check_workload(workload: Workload) -> None:
    """Raise ``SpecError`` with the field unless the workload exists and supports that dataset and these options."""
    if is_foreign(workload):
        return
    entry = WORKLOADS.get(workload.name)
    if entry is None:
        own = "or package.module:factory for one that you wrote"
        raise SpecError("workload.name", workload.name, f"one of {', '.join(WORKLOADS)}, {own}")
    if workload.dataset not in entry.datasets:
        raise SpecError("workload.dataset", workload.dataset, f"one of {', '.join(entry.datasets)} for {workload.name}")
    if workload.precision != "fp32" and (entry.sums or DATASETS[workload.dataset].kind == "traffic"):
        raise SpecError("workload.precision", workload.precision, f"fp32: {workload.name} computes no gradients")
    settings_of(workload)
    data_of(workload)


def check_training(spec: JobSpec) -> None:
    """Raise ``SpecError`` unless workload, optimizers and aggregation rule exist and are compatible."""
    check_workload(spec.workload)
    check_optimizers(spec)
    entry = WORKLOADS.get(spec.workload.name)
    if entry is None or not entry.sums:
        return
    if spec.federated is not None:
        raise SpecError("federated", spec.workload.name, "a workload of gradients: this one has no local steps")
    own = f"none: {entry.name} adds up by its own rule"
    if spec.weighing != "sample-weighted":
        raise SpecError("aggregation", spec.weighing, own)
    for field in ("groups", "clip"):
        if getattr(spec.optimizer, field):
            raise SpecError(f"optimizer.{field}", spec.workload.name, own)


def settings_of(workload: Workload) -> Any:
    """The workload's own options as the struct of its entry."""
    return settings_from(workload.name, WORKLOADS[workload.name].options, workload.options, "workload.options")


def data_of(workload: Workload) -> Any:
    """The data set's options as the struct of its entry."""
    return settings_from(workload.dataset, DATASETS[workload.dataset].options, workload.data, "workload.data")


def _described(entry: WorkloadEntry | DatasetEntry) -> dict[str, Any]:
    return {"name": entry.name, "explanation": entry.explanation} | described(entry.options)

"""The workloads, data sets and optimisers that the workers have, as far as a submission is checked against them.

The control plane does not import workers, so this is a table of its own; a test holds it equal to theirs.
"""

from controlplane.protocol.base import Value
from controlplane.protocol.spec import Optimizer, SpecError, Workload

DATASETS = {"digits": "scikit-learn's handwritten digits"}
OPTIMIZERS = ("sgd",)


class WorkloadEntry(Value, frozen=True, kw_only=True):
    """One workload: what it is, and what it can be trained on. None has options yet."""

    name: str
    explanation: str
    datasets: tuple[str, ...] = tuple(DATASETS)


WORKLOADS = {
    entry.name: entry
    for entry in (
        WorkloadEntry(name="cnn", explanation="Two small convolutional layers and a linear one."),
        WorkloadEntry(name="softmax-regression", explanation="One linear layer with softmax."),
    )
}


def check_workload(workload: Workload) -> None:
    """Raise ``SpecError``, naming the field, unless the workers have this workload and data set."""
    entry = WORKLOADS.get(workload.name)
    if entry is None:
        raise SpecError("workload.name", workload.name, f"one of {', '.join(sorted(WORKLOADS))}")
    if workload.dataset not in entry.datasets:
        raise SpecError("workload.dataset", workload.dataset, f"one of {', '.join(sorted(entry.datasets))}")
    if workload.options:
        raise SpecError("workload.options", workload.options, f"none: {workload.name} has no options")


def check_optimizer(optimizer: Optimizer) -> None:
    """Raise ``SpecError`` unless the servers have this optimiser."""
    if optimizer.name not in OPTIMIZERS:
        raise SpecError("optimizer.name", optimizer.name, f"one of {', '.join(OPTIMIZERS)}")

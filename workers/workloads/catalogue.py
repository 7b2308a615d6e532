"""From the workload of a spec to the workload itself, and the list of what there is."""

from dataclasses import dataclass

from controlplane.protocol.spec import SpecError
from controlplane.protocol.spec import Workload as WorkloadSpec
from workers.workloads.classifier import Classifier
from workers.workloads.datasets import DATASETS
from workers.workloads.models import MODELS
from workers.workloads.shape import Workload, tensor_sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """One workload that a job may name."""

    name: str
    dataset: str
    summary: str
    parameter_count: int
    sample_count: int


def load_workload(spec: WorkloadSpec) -> Workload:
    """The workload that a job names.

    Raises:
        SpecError: naming the field, what was found, and what there is.
    """
    if spec.name not in MODELS:
        raise SpecError("workload.name", spec.name, f"one of {', '.join(sorted(MODELS))}")
    if spec.dataset not in DATASETS:
        raise SpecError("workload.dataset", spec.dataset, f"one of {', '.join(sorted(DATASETS))}")
    if spec.options:
        raise SpecError("workload.options", spec.options, f"none: {spec.name} has no options")
    return Classifier(MODELS[spec.name], DATASETS[spec.dataset])


def catalogue() -> list[CatalogueEntry]:
    """Every workload with every data set that it can be trained on, by name."""
    return [_entry(model, dataset) for model in sorted(MODELS) for dataset in sorted(DATASETS)]


def _entry(model: str, dataset: str) -> CatalogueEntry:
    workload = Classifier(MODELS[model], DATASETS[dataset])
    return CatalogueEntry(
        name=model,
        dataset=dataset,
        summary=f"{MODELS[model].summary}; {DATASETS[dataset].summary}",
        parameter_count=sum(tensor_sizes(workload)),
        sample_count=workload.sample_count,
    )

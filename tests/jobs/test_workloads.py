"""The control plane's table of workloads is the workers' own."""

from controlplane.jobs.workloads import DATASETS, OPTIMIZERS, WORKLOADS
from workers.workloads.catalogue import catalogue
from workers.workloads.rules import OPTIMIZERS as OF_SERVERS


def test_the_tables_are_equal() -> None:
    ours = sorted((entry.name, dataset) for entry in WORKLOADS.values() for dataset in entry.datasets)
    assert ours == sorted((entry.name, entry.dataset) for entry in catalogue())
    assert sorted(DATASETS) == sorted({entry.dataset for entry in catalogue()})


def test_servers_have_every_optimiser_that_is_accepted() -> None:
    assert sorted(OPTIMIZERS) == sorted(OF_SERVERS)

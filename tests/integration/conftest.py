"""Clusters of emulated nodes that the files of tests share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.runtime.embedded.ground import free_port
from tests.support import on_ray, slurm


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[slurm.Cluster]:
    """Three nodes, all of them this machine."""
    if reason := slurm.why_not():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, slurm.running_cluster(Path(folder)) as running:
        yield running


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[on_ray.Cluster]:
    """Three nodes of two CPUs, to which jobs can be submitted."""
    if not on_ray.is_installed():
        pytest.skip(on_ray.INSTALL)
    with on_ray.running_cluster(nodes=3, cpus=2, jobs_at=free_port()) as running:
        yield running

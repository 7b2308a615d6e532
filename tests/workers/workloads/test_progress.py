"""What a network says of its gradients while it computes them."""

import numpy as np
import pytest

from controlplane.protocol.spec import Workload
from workers.workloads.catalogue import load_workload
from workers.workloads.network import Network
from workers.workloads.replica import NetworkReplica
from workers.workloads.shape import Vector


def replica_of(name: str, **options: object) -> NetworkReplica:
    workload = load_workload(Workload(name=name, dataset="digits", options=options))
    assert isinstance(workload, Network)
    replica = workload.replica()
    replica.parameters[:] = workload.init(7)
    return replica


@pytest.mark.parametrize(("name", "options"), [("mlp", {"hidden": [12, 9]}), ("cnn", {})])
def test_gradients_reported_as_final_do_not_change(name: str, options: dict[str, object]) -> None:
    replica = replica_of(name, **options)
    told: list[tuple[int, Vector]] = []
    replica.report_progress(lambda begin: told.append((begin, replica.gradient[begin:].copy())))
    for samples in (np.arange(16), np.arange(16, 20)):
        told.clear()
        replica.update(samples)
        begins = [begin for begin, _ in told]
        assert begins == sorted(set(begins), reverse=True)
        assert begins[-1] == 0
        assert len(begins) > 1, "not all at once"
        for begin, final in told:
            np.testing.assert_array_equal(final, replica.gradient[begin:])


def test_an_update_whose_loss_is_not_finite_is_not_reported() -> None:
    replica = replica_of("mlp", hidden=[12])
    told: list[int] = []
    replica.report_progress(told.append)
    replica.parameters[:] = np.nan
    replica.update(np.arange(4))
    assert told == []
    assert replica.update(np.arange(0)).samples == 0
    assert told == []
